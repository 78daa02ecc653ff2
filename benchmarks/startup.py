"""What one answer costs from a cold start, as multiples of `python -c pass`, and how much memory it takes.

    python benchmarks/startup.py

CPU time (user + system) of the whole process, the best of RUNS, because the best is what the code needs and the rest is noise.
Exits 1 if a limit is exceeded.
"""

from __future__ import annotations

import os
import sys
import tempfile

RUNS = 15
#: Bytes of the largest resident set.
LIMIT_MEMORY = 60 * 1024**2

BASE = "python -c pass"
_QUESTION = ["-m", "kvcalc", "estimate", "llama-2-7b", "--ctx", "128k"]
#: Case → the command line, and its limit in multiples of BASE. They take turns, so that noise meets all of them.
CASES = {BASE: (["-c", "pass"], 1), "estimate, piped": (_QUESTION, 18), "estimate, table": ([*_QUESTION, "-f", "table"], 21)}


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
    with tempfile.TemporaryDirectory() as cache:
        # Compiled files as an installation has them, whatever the checkout and the caller's environment.
        ignored = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
        environment = {key: value for key, value in os.environ.items() if key not in ignored} | {"PYTHONPYCACHEPREFIX": cache}
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
        held = seconds <= limit * base and memory <= LIMIT_MEMORY
        missed += not held
        print(
            f"{name:<18}{seconds * 1000:7.1f} ms {seconds / base:6.1f} x (limit {limit})"
            f"   {memory / 1024**2:5.1f} MiB (limit {LIMIT_MEMORY // 1024**2})   {'ok' if held else 'MISSED'}"
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
