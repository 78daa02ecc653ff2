"""How many fits and how many answers of a batch each engine gives in a CPU second, and how that compares with what it must.

    python benchmarks/fits.py [ENGINE…]        default: every engine

Every question differs in its context, its sequences or its memory, over six catalogue models that are loaded before the clock
starts. A fit is asked through the Python functions behind `kvcalc fit`; an answer is a line of `kvcalc batch`, read and written
as JSON. Best of three rounds. Exits 1 if a rate is missed.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from typing import TYPE_CHECKING, Any

from kvcalc.engines import ENGINES
from kvcalc.questions.batch import answers
from kvcalc.questions.fit_card import fit_or_size
from kvcalc.questions.request import parse_request
from kvcalc.sources import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MODELS = ("llama-3.1-8b", "gemma-3-27b", "deepseek-v3", "qwen3-next-80b-a3b", "gpt-oss-20b", "qwen3-30b-a3b")
#: Engine → fits, and answers of a batch, in a CPU second; every other engine must reach the last row.
LIMITS = {
    "ideal": (200, 9000),
    "vllm": (700, 4000),
    "llama.cpp": (200, 4000),
    "sglang": (200, 4000),
}
OTHERS = (200, 1000)
ROUNDS = 3
FITS, ANSWERS = 120, 1500


def questions(engine: str, command: str, count: int) -> list[dict[str, Any]]:
    """`count` questions, no two alike."""
    found = []
    for number, model in zip(range(count), itertools.cycle(MODELS), strict=False):
        question = {"id": number, "command": command, "model": model, "engine": engine, "context": 4096 + 37 * number}
        question["sequences"] = 1 + number % 3
        if command == "fit":
            question["kv_memory"] = (40 << 30) + number * 1_000_003
        found.append(question)
    return found


def fits(engine: str) -> Callable[[], int]:
    """A round of fits; it returns how many were answered."""
    asked = [parse_request(question) for question in questions(engine, "fit", FITS)]
    return lambda: len([fit_or_size(request).to_dict() for request in asked])


def batch(engine: str) -> Callable[[], int]:
    """A round of a batch; it returns how many lines were answered."""
    lines = [json.dumps(question) for question in questions(engine, "estimate", ANSWERS)]
    return lambda: sum(1 for ok, _ in answers(lines) if ok)


def rate(work: Callable[[], int]) -> float:
    """Answers in a CPU second, in the best of ROUNDS; the first call is not counted."""
    work()
    best = 0.0
    for _ in range(ROUNDS):
        start = time.process_time()
        count = work()
        best = max(best, count / max(time.process_time() - start, 1e-9))
    return best


def measured(engine: str) -> Iterator[tuple[str, float, int]]:
    """What is measured, its rate, and the rate that is asked for."""
    fit, answer = LIMITS.get(engine, OTHERS)
    yield "fits", rate(fits(engine)), fit
    yield "answers", rate(batch(engine)), answer


def main(engines: list[str]) -> int:
    """Print a line a rate; 1 if one is missed."""
    for model in MODELS:
        load(model)
    held = True
    print(f"{'engine':14}{'a CPU second':10}{'rate':>12}{'must':>10}{'ratio':>9}")
    for engine in engines or list(ENGINES):
        for what, found, must in measured(engine):
            held = held and found >= must
            print(f"{engine:14}{what:10}{found:12,.0f}{must:10,}{found / must:9.2f}   {'ok' if found >= must else 'MISSED'}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
