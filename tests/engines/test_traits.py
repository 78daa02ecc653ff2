"""What an engine alone needs of a config: a value of another type is a sentence about the file, whatever the engine."""

from __future__ import annotations

from typing import Any

import pytest

import kvcalc
from kvcalc.core.errors import InvalidConfigError
from kvcalc.core.fields import field_names
from kvcalc.core.traits import Traits
from kvcalc.engines import ENGINES
from kvcalc.sources.hf.families.identity import TRAITS

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "dtype": "bfloat16",
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "hidden_size": 1024,
    "max_position_embeddings": 4096,
}
#: The same as a kvcalc document.
DOCUMENT: dict[str, Any] = {
    "id": "tiny",
    "family": "llama",
    "dtype": "bfloat16",
    "layers": {"pattern": ["a"], "count": 2, "states": {"a": {"kind": "full", "kv_heads": 2, "query_heads": 8, "head_dim": 128}}},
}
#: Facts that are words: any text is one.
WORDS = ("mamba_ssm_dtype", "mamba_ssm_cache_dtype", "use_bidirectional_attention")


@pytest.mark.parametrize("engine", list(ENGINES))
@pytest.mark.parametrize("name", TRAITS)
def test_a_config_with_a_fact_of_another_type(engine: str, name: str) -> None:
    for wrong in [{}] if name in WORDS else ["x", {}, [[]], 1.5]:
        with pytest.raises(InvalidConfigError, match=rf"^config\.json: '{name}' .*(must|needs) ") as caught:
            kvcalc.estimate({"hf_config": CONFIG | {name: wrong}}, context=64, engine=engine)
        assert caught.value.exit_code == 2


@pytest.mark.parametrize("name", field_names(Traits))
def test_a_document_with_a_fact_of_another_type(name: str) -> None:
    for wrong in ([[], [None]], [object()]):
        with pytest.raises(InvalidConfigError, match=rf"^architecture: traits\.{name}(\[0\])?: must "):
            kvcalc.estimate({"architecture": DOCUMENT | {"traits": {name: wrong}}}, context=64)


def test_a_fact_that_no_engine_knows() -> None:
    with pytest.raises(InvalidConfigError, match="traits: unknown key 'index_topkk'; did you mean 'index_topk'"):
        kvcalc.estimate({"architecture": DOCUMENT | {"traits": {"index_topkk": 4}}}, context=64)


@pytest.mark.parametrize("engine", list(ENGINES))
def test_whole_numbers_that_a_tool_wrote_with_a_point(engine: str) -> None:
    said = [kvcalc.estimate({"hf_config": CONFIG | {"num_experts": count}}, context=64, engine=engine).to_dict() for count in (8, 8.0)]
    assert said[0] == said[1]
