"""Stores what kvcalc answers, as digests, so that a change of the code can be seen to move no figure.

    python tools/digest.py store before.jsonl                every catalogue model x every engine x QUESTIONS
    python tools/digest.py compare before.jsonl after.jsonl  the answers that differ; exit 1 if any does

A row holds the digest of the figures (bytes, lines, capacity, what fits), of the words (notes, warnings), and of an error's type.
Keys that a document gains do not count. Needs `kvcalc` importable; asks it through `kvcalc batch`, in as many processes as given.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ENGINES = ("ideal", "vllm", "sglang", "llama.cpp", "ollama", "transformers", "tensorrt-llm")
QUESTIONS: dict[str, dict[str, Any]] = {
    "plain": {"command": "estimate"},
    "n16": {"command": "estimate", "context": 5000, "sequences": 16},
    "tp2": {"command": "estimate", "context": 8192, "tensor_parallel": 2},
    "pp2": {"command": "estimate", "context": 33000, "pipeline_parallel": 2, "sequences": 3},
    "tp4-dcp2": {"command": "estimate", "context": 5000, "tensor_parallel": 4, "decode_context_parallel": 2},
    "fp8": {"command": "estimate", "context": 20000, "kv_dtype": "fp8"},
    "q8_0": {"command": "estimate", "context": 20000, "kv_dtype": "q8_0"},
    "prefix": {"command": "estimate", "context": 8192, "sequences": 4, "shared_prefix": 1000},
    "fit": {"command": "fit", "context": 8192, "sequences": 2, "kv_memory": 40 * 2**30},
    "card": {"command": "fit", "context": 8192, "gpu": "h100-80gb"},
}
#: The parts of a document that hold figures.
_FIGURES = ("kv_dtype", "bytes", "lines", "budget", "fits", "max_context", "max_sequences", "needed", "capacity", "remedies")
_WORDS = ("notes", "warnings")


def digest(value: Any) -> str:
    """Twelve hexadecimal digits of a value's canonical JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def _row(line: str) -> dict[str, Any]:
    found = json.loads(line)
    if not found["ok"]:
        return {"id": found["id"], "error": found["error"]["type"], "words": digest(found["error"]["message"])}
    result = found["result"]
    figures = {key: result[key] for key in _FIGURES if key in result}
    figures["context"] = result["workload"]["context"]
    return {"id": found["id"], "figures": digest(figures), "words": digest([result[key] for key in _WORDS])}


def ask(models: list[str], python: str) -> list[dict[str, Any]]:
    """The rows of those models, from one process of `kvcalc batch`."""
    lines = [
        json.dumps({"id": f"{model} {engine} {name}", "model": model, "engine": engine, **question})
        for model in models
        for engine in ENGINES
        for name, question in QUESTIONS.items()
    ]
    done = subprocess.run([python, "-m", "kvcalc", "batch", "-"], input="\n".join(lines), capture_output=True, text=True, check=False)
    return [_row(line) for line in done.stdout.splitlines()]


def store(path: Path, python: str, processes: int) -> None:
    """Ask everything and write a row a line."""
    listing = subprocess.run([python, "-m", "kvcalc", "models", "list", "-f", "json"], capture_output=True, text=True, check=True)
    models = [model["id"] for model in json.loads(listing.stdout)["models"]]
    with ThreadPoolExecutor(processes) as pool:
        parts = pool.map(lambda start: ask(models[start::processes], python), range(processes))
    rows = sorted((row for part in parts for row in part), key=lambda row: row["id"])
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    print(f"{len(rows):,} answers of {len(models)} models: {digest(rows)}")


def compare(before: Path, after: Path) -> int:
    """Print what differs, by kind; 1 where something does."""
    old, new = ({row["id"]: row for row in map(json.loads, path.read_text(encoding="utf-8").splitlines())} for path in (before, after))
    kinds: Counter[str] = Counter()
    for name in sorted(old.keys() | new.keys()):
        a, b = old.get(name, {}), new.get(name, {})
        for key in ("error", "figures", "words"):
            if a.get(key) != b.get(key):
                kinds[key] += 1
                print(f"{key:8} {name}  {a.get(key) or a.get('error')} -> {b.get(key) or b.get('error')}")
    print(f"{len(old):,} and {len(new):,} answers; differing: {dict(kinds) or 'none'}")
    return 1 if kinds else 0


def main() -> int:
    """`store FILE` or `compare BEFORE AFTER`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("store", "compare"))
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has kvcalc")
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    if given.action == "store":
        store(given.files[0], given.python, given.processes)
        return 0
    return compare(*given.files)


if __name__ == "__main__":
    raise SystemExit(main())
