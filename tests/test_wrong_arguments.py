"""The Python interface given values of every wrong kind: each is a KvcalcError with a sentence, or it is understood."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

import kvcalc
from kvcalc.core.errors import KvcalcError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

WRONG: tuple[Any, ...] = (
    5,
    -1,
    1.5,
    True,
    None,
    "",
    b"x",
    [],
    [5],
    {},
    {"a": 1},
    {5: 5},
    object(),
    ("a", 5),
    math.nan,
    10**30,
    "\0",
    set(),
    len,
)
KEYWORDS = (
    "context",
    "sequences",
    "kv_dtype",
    "engine",
    "engine_args",
    "tensor_parallel",
    "pipeline_parallel",
    "decode_context_parallel",
    "gpu",
    "kv_memory",
    "shared_prefix",
    "nonesuch",
)
BUDGETS = "budgets: [{name: a, model: gpt2, limits: {total: 1GiB}}]\n"


def asked(function: Any, *given: Any, **named: Any) -> None:
    """It answers, or raises an error of kvcalc that has a sentence."""
    try:
        found = function(*given, **named)
    except KvcalcError as error:
        assert error.message  # noqa: PT017  the answer is asked for below
    else:
        assert not hasattr(found, "to_dict") or found.to_dict()


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: repr(wrong)[:20])
def test_models_of_any_kind(wrong: Any) -> None:
    for function in (kvcalc.load, kvcalc.estimate, kvcalc.compare):
        asked(function, wrong)
    for inline in ({"hf_config": wrong}, {"gguf_metadata": wrong}, {"architecture": wrong}, {"hf_config": {"model_type": wrong}}):
        asked(kvcalc.load, inline)
    asked(kvcalc.fit, wrong, kv_memory=2**30)
    asked(kvcalc.compare, [wrong])


@pytest.mark.parametrize("key", KEYWORDS)
def test_values_of_any_kind(key: str) -> None:
    for wrong in WRONG:
        asked(kvcalc.estimate, "gpt2", **{key: wrong})
        asked(kvcalc.fit, "gpt2", **{"kv_memory": 2**30, key: wrong})
        asked(kvcalc.compare, **{key: wrong})


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: repr(wrong)[:20])
def test_lists_and_settings_of_any_kind(wrong: Any) -> None:
    for key in ("techniques", "engines", "settings"):
        asked(kvcalc.compare, "gpt2", **{key: wrong})
    asked(kvcalc.compare, "gpt2", settings={"kv_heads": wrong})
    asked(kvcalc.compare, "gpt2", engines=[wrong])
    asked(kvcalc.compare, techniques=[wrong])
    asked(kvcalc.estimate, "gpt2", engine="vllm", engine_args={"block_size": wrong})


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: repr(wrong)[:20])
def test_files_of_any_kind(wrong: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "kvcalc.yaml"
    file.write_text(BUDGETS)
    asked(kvcalc.check, wrong)
    for key in ("baseline", "only"):
        asked(kvcalc.check, file, **{key: wrong})


def test_what_is_meant_is_understood(tmp_path: Path) -> None:
    assert kvcalc.compare("gpt2", techniques=["mqa"], settings={"kv_heads": 6}).rows[0].plan is not None
    with pytest.raises(UsageError, match="techniques: 'gqa' is not a list of names"):
        kvcalc.compare(techniques="gqa")
    config = tmp_path / "config.json"
    config.write_text(
        '{"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64, "torch_dtype": "bfloat16"}'
    )
    assert kvcalc.load(config).layers.count == 2


@pytest.mark.parametrize("word", [-1, "-1", "auto", "AUTO"])
def test_the_largest_that_fits_has_one_meaning(word: int | str) -> None:
    found = kvcalc.fit("llama-3.1-8b", context=word, kv_memory="1GiB")
    assert (found.max_context, found.fits) == (8192, True)
    with pytest.raises(UsageError, match="the largest that fits"):
        kvcalc.estimate("llama-3.1-8b", context=word)
