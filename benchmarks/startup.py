"""What one answer costs from a cold start, as multiples of `python -c pass`, and how much memory it takes.

    python benchmarks/startup.py

CPU time (user + system) of the whole process, the best of RUNS, because the best is what the code needs and the rest is noise.
The catalogue is compiled first, as it is when the package is installed. Exits 1 if a limit is exceeded.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

RUNS = 15
#: Bytes of the largest resident set of an estimate, and of any other command.
LIMIT_MEMORY, LIMIT_MEMORY_ELSEWHERE = 22 * 1024**2, 60 * 1024**2

BASE = "python -c pass"
_KVCALC = ["-m", "kvcalc"]
_QUESTION = [*_KVCALC, "estimate", "llama-2-7b", "--ctx", "128k"]
#: Case → the command line, and its limit in multiples of BASE. They take turns, so that noise meets all of them.
CASES: dict[str, tuple[list[str], int]] = {
    BASE: (["-c", "pass"], 1),
    "estimate, piped": (_QUESTION, 8),
    "estimate, table": ([*_QUESTION, "-f", "table"], 11),
    "fit -e vllm": ([*_KVCALC, "fit", "llama-3.1-8b", "--kv-memory", "40GiB", "-e", "vllm"], 13),
    "estimate --help": ([*_KVCALC, "estimate", "--help"], 8),
    "check, 1 budget": ([*_KVCALC, "check", "1.yaml"], 11),
    "check, 100 budgets": ([*_KVCALC, "check", "100.yaml"], 14),
}


def budgets(count: int) -> str:
    """A file of as many budgets, of four models in turn."""
    models = ("llama-2-7b", "llama-3.1-8b", "gemma-3-27b", "deepseek-v3")
    entries = [
        f"  - {{name: b{n}, model: {models[n % len(models)]}, context: {1024 + n}, limits: {{total: 1024GiB}}}}" for n in range(count)
    ]
    return "\n".join(("budgets:", *entries, ""))


def run(arguments: list[str], environment: dict[str, str]) -> tuple[float, int]:
    """CPU seconds and peak resident bytes of one process, its output thrown away."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    actions = [(os.POSIX_SPAWN_DUP2, nowhere, stream) for stream in (0, 1, 2)]
    child = os.posix_spawn(sys.executable, [sys.executable, *arguments], environment, file_actions=actions)
    _, status, used = os.wait4(child, 0)
    os.close(nowhere)
    if os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit(f"{' '.join(arguments)} failed")
    return used.ru_utime + used.ru_stime, used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def main() -> int:
    """Print one line a case; 1 if a limit is exceeded."""
    # By another process: what this one holds in memory would be counted with every case.
    subprocess.run([sys.executable, "-c", "from kvcalc.sources import catalogue as c; c.compile_folder(c.folder())"], check=True)
    with tempfile.TemporaryDirectory() as cache:
        for count in (1, 100):
            Path(cache, f"{count}.yaml").write_text(budgets(count), encoding="utf-8")
        # Compiled files as an installation has them, whatever the checkout and the caller's environment.
        ignored = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
        environment = {key: value for key, value in os.environ.items() if key not in ignored} | {"PYTHONPYCACHEPREFIX": cache}
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        os.chdir(cache)
        for arguments, _ in CASES.values():
            run(arguments, environment)
        runs: dict[str, list[tuple[float, int]]] = {name: [] for name in CASES}
        for _ in range(RUNS):
            for name, (arguments, _) in CASES.items():
                runs[name].append(run(arguments, environment))
    base = min(seconds for seconds, _ in runs[BASE])
    missed = 0
    for name, (_, limit) in CASES.items():
        seconds, memory = min(runs[name])[0], max(memory for _, memory in runs[name])
        most = LIMIT_MEMORY if name in (BASE, "estimate, piped") else LIMIT_MEMORY_ELSEWHERE
        held = seconds <= limit * base and memory <= most
        missed += not held
        print(
            f"{name:<20}{seconds * 1000:7.1f} ms {seconds / base:6.1f} x (limit {limit})"
            f"   {memory / 1024**2:5.1f} MiB (limit {most // 1024**2})   {'ok' if held else 'MISSED'}"
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
