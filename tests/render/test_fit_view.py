"""What would make it fit: as options of kvcalc, as flags of a launch command, else in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.engines.vllm.launch import _WORDS
from kvcalc.questions.fit import fit
from kvcalc.questions.request import parse_request
from kvcalc.render import plain
from kvcalc.render.fit_view import view
from kvcalc.render.launch_view import view_of

if TYPE_CHECKING:
    from kvcalc.questions.documents.fit import FitDocument


def document(engine: str) -> FitDocument:
    asked = {"model": "llama-3.1-8b", "engine": engine, "context": 131_072, "kv_memory": 10 * 1024**3}
    return fit(parse_request(asked)).document()


def ways(text: str) -> list[str]:
    lines = text.partition("It would fit with one of\n")[2].splitlines()
    return [line.partition("  ")[0] for line in lines]


def test_options_of_kvcalc_flags_of_the_command_or_words() -> None:
    assert ways(plain.render(view(document("vllm")))) == ["--ctx 81904", "--kv-dtype fp8", "--tp 2"]
    flags = ["--max-model-len 81904", "--kv-cache-dtype fp8", "--tensor-parallel-size 2"]
    assert ways(plain.render(view_of(lambda setting, value: _WORDS[setting].format(value))(document("vllm")))) == flags
    words = ways(plain.render(view_of(lambda *_: None)(document("transformers"))))
    assert words[0] == "context 81920"
    assert not any(word.startswith("-") for word in words)
