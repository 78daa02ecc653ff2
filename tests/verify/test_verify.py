"""`verify`: the way back to a config, and kvcalc's figure beside the real class (where torch and transformers are installed)."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from kvcalc.core.architecture import Architecture, Source
from kvcalc.core.errors import EngineRejectsError, InvalidConfigError, UnsupportedArchitectureError, UsageError
from kvcalc.engines.transformers import families
from kvcalc.sources import load
from kvcalc.sources.catalogue import read_mapping
from kvcalc.sources.hf import hub
from kvcalc.sources.hf.reader import read_config
from kvcalc.verify import published, run, verify
from kvcalc.verify.mirror import layer_types, mirror

if TYPE_CHECKING:
    from pathlib import Path

lab = pytest.mark.skipif(find_spec("torch") is None or find_spec("transformers") is None, reason="needs torch and transformers")

#: A technique each, and small enough for CI.
CATALOGUE = [
    "llama-2-7b",  # MHA
    "llama-3.1-8b",  # GQA
    "gemma-2b",  # MQA
    "mistral-7b-v0.1",  # every layer slides
    "gemma-3-1b",  # one layer in six is full
    "gpt-oss-20b",  # every second layer slides
    "olmo-3-7b",  # listed layers
    "gemma-4-e2b",  # sharing, and two widths of heads
    "deepseek-v2-lite",  # MLA
    "deepseek-v3.2",  # MLA with index keys
    "qwen3-next-80b-a3b",  # gated DeltaNet
    "mamba-2.8b",  # Mamba
    "granite-4.0-h-tiny",  # Mamba-2 and attention
    "falcon-h1-0.5b",  # both in every layer
    "lfm2-350m",  # short convolutions
    "kimi-linear-48b-a3b",  # KDA and MLA
    "falcon-7b",  # one head, the old decoder
    "nemotron-h-8b",  # layers without a cache
]
#: Three layers of 3 KV heads x 8, the middle one with a window of 5.
SMALL: dict[str, Any] = {
    "model_type": "gemma3_text",
    "dtype": "bfloat16",
    "vocab_size": 64,
    "hidden_size": 48,
    "intermediate_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "head_dim": 8,
    "sliding_window": 5,
    "layer_types": ["full_attention", "sliding_attention", "full_attention"],
}
TOKEN = 3 * 2 * 8 * 2


def model(order: list[str], states: dict[str, Any], **fields: object) -> Architecture:
    layers = {"pattern": order, "count": len(order), "states": states}
    return read_mapping({"id": "m", "layers": layers} | fields)


# The way back.


def test_fields_go_under_the_names_that_the_class_has() -> None:
    architecture = model(
        ["full"] * 4, {"full": {"kind": "full", "query_heads": 8, "kv_heads": 2, "head_dim": 16}}, family="gpt2", hidden_dim=128
    )
    assert mirror(architecture, {"n_layer": 12, "n_embd": 768, "n_head": 12}) == {"n_layer": 4, "n_embd": 128, "n_head": 8}


def test_a_class_with_a_window_is_told_that_there_is_none() -> None:
    states = {"full": {"kind": "full", "query_heads": 8, "kv_heads": 2, "head_dim": 16}}
    fields = mirror(model(["full"], states, family="mistral", hidden_dim=128), {"num_hidden_layers": 32, "sliding_window": 4096})
    assert fields == {"num_hidden_layers": 1, "sliding_window": None}


def test_a_width_that_is_not_hidden_over_heads_is_written_anyway() -> None:
    states = {"full": {"kind": "full", "query_heads": 8, "kv_heads": 2, "head_dim": 64}}
    assert mirror(model(["full"], states, family="falcon_h1", hidden_dim=1024), {})["head_dim"] == 64


def test_layer_types_in_order_and_of_the_producer_where_shared() -> None:
    states = {
        "local": {"kind": "sliding", "window": 4, "kv_heads": 1, "head_dim": 8},
        "global": {"kind": "full", "kv_heads": 1, "head_dim": 8},
        "reader": {"kind": "shared", "shares_with": 0},
        "mix": [{"kind": "full", "kv_heads": 1, "head_dim": 8}, {"kind": "mamba2", "heads": 1, "head_dim": 8, "state_dim": 4}],
    }
    order = ["local", "global", "reader", "mix"]
    assert layer_types(model(order, states, family="x")) == ["sliding_attention", "full_attention", "sliding_attention", "hybrid"]
    assert layer_types(model(["odd"], {"odd": {"kind": "cross", "kv_heads": 1, "head_dim": 8}}, family="x")) is None


def test_jamba_by_period_and_offset() -> None:
    architecture = load("jamba-v0.1")
    fields = mirror(architecture, {"attn_layer_period": 8, "mamba_expand": 2, "mamba_d_state": 16})
    assert (fields["attn_layer_period"], fields["attn_layer_offset"], fields["mamba_expand"]) == (8, 4, 2)


def test_glm_5_says_which_layers_own_an_indexer() -> None:
    fields = mirror(load("glm-5.2"), {})
    assert len(fields["indexer_types"]) == 78
    assert (fields["indexer_types"].count("full"), set(fields["layer_types"])) == (21, {"indexed_attention"})


def test_deepseek_v4_by_ratios() -> None:
    fields = mirror(load("deepseek-v4-flash"), {})
    assert (fields["head_dim"], fields["qk_rope_head_dim"]) == (512, 64)
    assert fields["compress_rates"] == {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
    counts = [fields["layer_types"].count(word) for word in ("sliding_attention", *fields["compress_rates"])]
    assert counts == [2, 21, 20]


def test_gemma_4_with_kv_heads_of_two_kinds() -> None:
    fields = mirror(load("gemma-4-31b"), {})
    assert (fields["num_key_value_heads"], fields["num_global_key_value_heads"], fields["attention_k_eq_v"]) == (16, 4, True)
    assert (fields["head_dim"], fields["global_head_dim"], fields["num_kv_shared_layers"]) == (256, 512, 0)


# Where the config comes from.


def test_a_published_config_goes_to_the_class_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    for text in (str(tmp_path), str(tmp_path / "config.json")):
        assert published(text, load(text)) == SMALL
    assert published({"hf_config": SMALL}, load({"hf_config": SMALL})) == SMALL


def test_the_config_of_a_repository_is_read_at_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SMALL))
    asked: list[tuple[str, ...]] = []

    class Repository:
        def __init__(self, *where: str) -> None:
            asked.append(where)

        def fetch(self, file: str, _limit: int) -> hub.Fetched:
            asked.append((file,))
            return hub.Fetched(path, "abc")

    monkeypatch.setattr(hub, "Repository", Repository)
    architecture = read_config(SMALL, model_id="org/name", source=Source(file="org/name/config.json", where="Hub", revision="abc"))
    assert published("org/name", architecture) == SMALL
    assert asked == [("org/name", "abc"), ("config.json",)]


def test_catalogue_entries_and_yaml_have_none(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_text("id: m\nfamily: llama\nlayers: {pattern: [a], count: 1, states: {a: {kind: full, kv_heads: 1, head_dim: 8}}}\n")
    assert published(str(path), load(str(path))) is None
    assert published("llama-2-7b", load("llama-2-7b")) is None


def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "find_spec", lambda name: None if name == "torch" else object())
    with pytest.raises(UsageError, match="needs torch") as error:
        verify("llama-2-7b")
    assert error.value.hint == "pip install 'kvcalc[lab]'"


def test_neither_torch_nor_transformers_is_imported_with_the_module() -> None:
    if "torch" not in sys.modules:
        assert "transformers" not in sys.modules


# The comparison.


@lab
@pytest.mark.parametrize("name", CATALOGUE)
def test_catalogue_models_are_equal_to_the_byte(name: str) -> None:
    found = verify(name)
    assert [row.layer for row in found.layers if row.difference] == []
    assert found.equal
    assert found.transformers == found.kvcalc == found.plan.total > 0


@lab
def test_a_row_a_layer_and_a_document() -> None:
    found = verify({"hf_config": SMALL}, 12)
    assert [(row.layer, row.states, row.kvcalc) for row in found.layers] == [
        ("0", "full", 12 * TOKEN),
        ("1", "sliding", 5 * TOKEN),
        ("2", "full", 12 * TOKEN),
    ]
    document = json.loads(json.dumps(found.to_dict()))
    assert document["schema"] == "kvcalc.verify/1"
    assert (document["equal"], document["bytes"]) == (True, {"kvcalc": 29 * TOKEN, "transformers": 29 * TOKEN, "difference": 0})
    assert document["class"]["name"] == "Gemma3ForCausalLM"
    assert document["workload"]["context"] == 12
    assert {"model", "engine", "kv_dtype", "notes", "warnings"} < document.keys()


@lab
def test_the_default_context_sees_windows_drop_tokens() -> None:
    assert verify({"hf_config": SMALL}).plan.context > 5


@lab
def test_one_token_and_a_file(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SMALL))
    found = verify(str(path), "1")
    assert (found.equal, found.kvcalc, found.config) == (True, 3 * TOKEN, "its own config.json")


@lab
def test_a_wrong_rule_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {
        "model_type": "lfm2",
        "dtype": "bfloat16",
        "vocab_size": 64,
        "hidden_size": 48,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
    }
    config |= {"num_attention_heads": 6, "num_key_value_heads": 3, "layer_types": ["conv", "full_attention"], "conv_L_cache": 3}
    assert verify({"hf_config": config}).equal
    monkeypatch.setitem(families.FAMILIES, "lfm2", families.Quirk(extra_columns=0))
    found = verify({"hf_config": config})
    assert not found.equal
    assert [row.difference for row in found.layers] == [-48 * 2, 0]
    assert found.to_dict()["bytes"]["difference"] == -96


@lab
def test_the_class_runs_in_the_type_that_the_config_says() -> None:
    assert verify({"hf_config": SMALL | {"dtype": "float32"}}, 3).transformers == 3 * 3 * TOKEN * 2


@lab
@pytest.mark.parametrize("name", ["phi-3-small-8k", "minimax-m1", "kimi-k3"])
def test_models_without_a_class(name: str) -> None:
    with pytest.raises(UnsupportedArchitectureError):
        verify(name)


@lab
def test_a_class_that_does_not_run_is_named() -> None:
    with pytest.raises(UnsupportedArchitectureError, match="does not run on the meta device"):
        verify({"hf_config": SMALL | {"intermediate_size": "many"}})


@lab
@pytest.mark.parametrize(
    ("model", "context", "error"), [(SMALL, 10**9, UsageError), (SMALL | {"dtype": "float8_e5m2"}, 4, EngineRejectsError)]
)
def test_questions_that_are_refused(model: dict[str, Any], context: int, error: type[Exception]) -> None:
    with pytest.raises(error):
        verify({"hf_config": model}, context)


@lab
def test_a_broken_config_stays_a_broken_config() -> None:
    with pytest.raises(InvalidConfigError):
        verify({"hf_config": SMALL | {"num_hidden_layers": -1}})
