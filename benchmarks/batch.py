"""How many questions `kvcalc batch` answers in a second on one core, and whether its memory stays flat.

    python benchmarks/batch.py [LINES]        default 100,000

The questions are mixed: catalogue ids, inline config.json, several contexts and formats. Exits 1 if a limit is exceeded.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

LINES = 100_000
#: Answers per CPU second.
LIMIT_RATE = 3_000
#: Peak memory of all lines over that of a few.
LIMIT_GROWTH = 4 * 1024**2
_FEW = 2_000

_CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
_MODELS = ("llama-2-7b", "llama-3.1-8b", "gemma-3-27b", "deepseek-v3", "qwen3-next-80b-a3b", {"hf_config": _CONFIG})
_CONTEXTS = (4096, 32768, 100_000, 131_072)
_FORMATS = ("auto", "fp8", "int8")


def write_questions(path: Path, lines: int) -> None:
    """`lines` requests as JSON Lines."""
    asked = itertools.cycle(itertools.product(_MODELS, _CONTEXTS, _FORMATS))
    with path.open("w", encoding="utf-8") as file:
        for number, (model, context, kv_dtype) in zip(range(lines), asked, strict=False):
            request = {"id": number, "command": "estimate", "model": model, "context": context, "kv_dtype": kv_dtype}
            file.write(json.dumps(request) + "\n")


def answer(questions: Path, answers: Path) -> tuple[float, int]:
    """CPU seconds and peak resident bytes of one `kvcalc batch`."""
    with answers.open("wb") as out:
        child = subprocess.Popen([sys.executable, "-m", "kvcalc", "batch", str(questions)], stdout=out)
        _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise SystemExit("kvcalc batch failed")
    return used.ru_utime + used.ru_stime, used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def main(lines: int) -> int:
    """Print the rate and the memory; 1 if a limit is exceeded."""
    with tempfile.TemporaryDirectory() as folder:
        questions, answers = Path(folder, "questions.jsonl"), Path(folder, "answers.jsonl")
        write_questions(questions, _FEW)
        start, few = answer(questions, answers)
        write_questions(questions, lines)
        seconds, memory = answer(questions, answers)
        with answers.open(encoding="utf-8") as file:
            answered = sum(1 for line in file if json.loads(line)["ok"])
    rate = (lines - _FEW) / max(seconds - start, 1e-9)
    held = answered == lines and rate >= LIMIT_RATE and memory - few <= LIMIT_GROWTH
    print(f"{answered:,} of {lines:,} answered, {rate:,.0f} a CPU second (limit {LIMIT_RATE:,})")
    print(f"peak {memory / 1024**2:.1f} MiB; {_FEW:,} lines: {few / 1024**2:.1f} MiB   {'ok' if held else 'MISSED'}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else LINES))
