"""How long `kvcalc check` takes for 500 budgets over 100 models, on one core, and whether its memory stays flat.

    python benchmarks/check.py

Catalogue models under vLLM, one budget in ten exceeded, so that its remedies are searched for; then as many config.json files
beside the budgets. CPU time (user + system) of the whole process. Exits 1 if a limit is exceeded.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

BUDGETS, MODELS = 500, 100
LIMIT_SECONDS = 3.0
#: Peak memory of all budgets over that of one budget a model: what a verdict takes, and no model more than once.
LIMIT_GROWTH = 8 * 1024**2
_ONE_IN = 10
_CONFIG = {
    "model_type": "gemma3_text",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "sliding_window": 1024,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}


def catalogue_models() -> list[str]:
    """The first MODELS ids whose figure under vLLM is known."""
    from kvcalc.core.errors import KvcalcError
    from kvcalc.questions.estimate import estimate
    from kvcalc.questions.request import parse_request
    from kvcalc.sources import catalogue

    found: list[str] = []
    for model in catalogue.ids():
        try:
            estimate(parse_request({"model": model, "engine": "vllm", "context": 8192}))
        except KvcalcError:
            continue
        found.append(model)
    return found[:MODELS]


def config_files(folder: Path) -> list[str]:
    """MODELS config.json files, no two alike."""
    for number in range(MODELS):
        path = folder / f"m{number}"
        path.mkdir()
        (path / "config.json").write_text(json.dumps(_CONFIG | {"num_hidden_layers": 12 + number}), encoding="utf-8")
    return [f"./m{number}/config.json" for number in range(MODELS)]


def write_budgets(path: Path, models: list[str], count: int) -> None:
    """`count` budgets that go through the models in turn, so that no model's budgets stand together."""
    lines = ["defaults: {engine: vllm, context: 8k}", "budgets:"]
    for number in range(count):
        model, limit = models[number % len(models)], "2MiB" if number % _ONE_IN == 0 else "1TiB"
        sequences = 1 + number // len(models)
        lines.append(f"  - {{name: b{number}, model: {model}, sequences: {sequences}, limits: {{total: {limit}, per_token: 16MiB}}}}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def check(path: Path) -> tuple[float, int, str]:
    """CPU seconds and peak resident bytes of one `kvcalc check`, and its first line."""
    command = [sys.executable, "-m", "kvcalc", "check", str(path), "--format", "plain"]
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        first = out.readline().decode().strip()
    if child.returncode != 1:
        raise SystemExit(f"kvcalc check failed with {child.returncode}: {first}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss * (1 if sys.platform == "darwin" else 1024), first


def main() -> int:
    """Print seconds and memory of both kinds of models; 1 if a limit is exceeded."""
    held = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "kvcalc.yaml"
        for kind, models in (("catalogue", catalogue_models()), ("config.json", config_files(folder))):
            write_budgets(path, models, len(models))
            _, few, _ = check(path)
            write_budgets(path, models, BUDGETS)
            seconds, memory, first = min(check(path) for _ in range(3))
            fine = seconds <= LIMIT_SECONDS and memory - few <= LIMIT_GROWTH
            held = held and fine
            print(f"{first.partition(':')[0]} over {len(models)} models ({kind}): {seconds:.2f} s (limit {LIMIT_SECONDS:g} s),")
            print(f"  peak {memory / 1024**2:.1f} MiB; {len(models)} budgets: {few / 1024**2:.1f} MiB   {'ok' if fine else 'MISSED'}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
