"""Mutated config.json files, GGUF headers and questions: an answer or a KvcalcError of the right kind, within 2 seconds and 300 MiB.

A long run: `KVCALC_FUZZ=5000 pytest tests/test_fuzz.py`.
"""

from __future__ import annotations

import gc
import json
import os
import struct
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from gguf_writer import Tensor, gguf_bytes
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcalc.core.errors import EXIT_INTERNAL, EngineRejectsError, InvalidConfigError, UnsupportedArchitectureError, UsageError
from kvcalc.core.formats import FORMATS
from kvcalc.core.workload import Workload
from kvcalc.engines import ENGINES, get_engine
from kvcalc.hardware import gpus
from kvcalc.questions.batch import answer
from kvcalc.sources.catalogue import ids
from kvcalc.sources.gguf.architecture import read_metadata
from kvcalc.sources.gguf.reader import read_gguf
from kvcalc.sources.gguf.tensors import weights_bytes
from kvcalc.sources.hf.families.defaults import class_defaults
from kvcalc.sources.hf.reader import read_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kvcalc.core.architecture import Architecture

#: Mutations of each kind of file.
EXAMPLES = int(os.environ.get("KVCALC_FUZZ", "25"))
SECONDS = 2.0
MEMORY = 300 * 1024**2
REFUSALS = (InvalidConfigError, UnsupportedArchitectureError)
PLAN_REFUSALS = (UsageError, EngineRejectsError, UnsupportedArchitectureError)

#: One model_type of each shape that readers share, and some with rules of their own.
TYPES = (
    *("llama", "gpt2", "falcon", "dbrx", "chatglm", "mistral", "qwen2", "gemma3_text", "gpt_oss", "llama4_text", "gemma3n_text"),
    *("gemma4_text", "deepseek_v3", "longcat_flash", "deepseek_v32", "minimax_m3", "deepseek_v4", "qwen3_next", "kimi_linear", "minimax"),
    *("mamba", "mamba2", "jamba", "granitemoehybrid", "falcon_h1", "nemotron_h", "zamba2", "lfm2", "recurrent_gemma", "rwkv", "t5"),
)
#: Fields that some reader or another looks at.
FIELDS = (
    *("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "v_head_dim", "sliding_window"),
    *("layer_types", "layers_block_type", "hybrid_override_pattern", "sliding_window_pattern", "max_window_layers", "use_sliding_window"),
    *(
        "kv_lora_rank",
        "qk_rope_head_dim",
        "qk_nope_head_dim",
        "index_head_dim",
        "compress_ratios",
        "linear_attn_config",
        "attn_layer_period",
    ),
    *("mamba_d_state", "mamba_d_conv", "mamba_expand", "mamba_n_heads", "mamba_n_groups", "mamba_d_head", "conv_L_cache", "block_types"),
    *("torch_dtype", "dtype", "architectures", "quantization_config", "rope_scaling", "rope_parameters", "max_position_embeddings"),
    *("num_nextn_predict_layers", "text_config", "attn_config", "model_type", "num_kv_shared_layers", "full_attention_idxs", "decoder"),
)
NUMBERS = st.one_of(
    st.integers(-3, 9),
    st.sampled_from([64, 128, 4096, 2**31 - 1, 2**31, 2**63, 10**30, -(10**30)]),
    st.floats(),
)
WORDS = st.one_of(
    st.sampled_from(
        ["full_attention", "sliding_attention", "linear_attention", "mamba", "attention", "conv", "recurrent", "moe", "M*-E", "auto"]
    ),
    st.text(max_size=6),
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, WORDS),
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(WORDS, inner, max_size=3)),
    max_leaves=6,
)
LISTS = st.builds(lambda items, times: items * times, st.lists(st.one_of(NUMBERS, WORDS), max_size=4), st.sampled_from([1, 2, 8, 16, 5000]))


@contextmanager
def bounded() -> Iterator[None]:
    """No hang, and no memory beyond what is allowed."""
    # The collector's pauses are those of Hypothesis' own memory, which a long run fills.
    gc.disable()
    before, started = peak(), time.process_time()
    try:
        yield
    finally:
        gc.enable()
    assert time.process_time() - started < SECONDS
    assert peak() - before < MEMORY


def peak() -> int:
    """The most memory that this process has held so far; 0 where it cannot be known."""
    if sys.platform == "win32":
        return 0
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def answered(read: Callable[[], Architecture], engine: str) -> None:
    """Reading and planning end in a plan that adds up or in a refusal; anything else is raised."""
    with bounded():
        try:
            architecture = read()
        except REFUSALS as error:
            said = error.message + error.hint
        else:
            said = planned(architecture, engine)
    assert said.isprintable()
    assert "nput should" not in said


def planned(architecture: Architecture, engine: str) -> str:
    try:
        plan = get_engine(engine).plan(architecture, Workload(context=1000, sequences=2))
    except PLAN_REFUSALS as error:
        return error.message + error.hint
    assert plan.total == sum(line.bytes for line in plan.lines)
    assert 0 <= plan.per_device <= plan.total
    return ""


@pytest.mark.parametrize("model_type", TYPES)
@settings(max_examples=EXAMPLES)
@given(st.data())
def test_a_mutated_config(model_type: str, data: st.DataObject) -> None:
    config: dict[str, Any] = {"model_type": model_type, **class_defaults(model_type)}
    for _ in range(data.draw(st.integers(1, 4))):
        key = data.draw(st.sampled_from((*config, *FIELDS)))
        if data.draw(st.booleans()):
            config[key] = data.draw(st.one_of(VALUES, LISTS))
        else:
            config.pop(key, None)
    answered(lambda: read_config(config), data.draw(st.sampled_from(list(ENGINES))))


#: llama.cpp architectures with rules of their own.
GGUF_TYPES = (
    *("llama", "gemma3", "gemma4", "gpt-oss", "deepseek2", "deepseek32", "deepseek4", "minimax-m3", "mamba", "mamba2", "rwkv7", "jamba"),
    *("falcon-h1", "lfm2", "nemotron_h", "qwen3next", "minimax-01", "kimi-linear", "glm5-next", "graniteswitch", "t5", "bert"),
)
KEYS = (
    *("block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count", "attention.head_count_kv"),
    *("attention.key_length", "attention.value_length", "attention.key_length_mla", "attention.value_length_mla", "attention.kv_lora_rank"),
    *("attention.sliding_window", "attention.sliding_window_pattern", "attention.shared_kv_layers", "attention.indexer.key_length"),
    *("attention.recurrent_layers", "attention.causal", "rope.dimension_count", "full_attention_interval", "nextn_predict_layers"),
    *("ssm.conv_kernel", "ssm.state_size", "ssm.inner_size", "ssm.time_step_rank", "ssm.group_count", "shortconv.l_cache", "wkv.head_size"),
    *("token_shift_count", "kda.head_dim", "attention.compress_ratios", "attention.indexer.head_count", "decoder_block_count"),
)
SEED = {
    "block_count": 8,
    "context_length": 2048,
    "embedding_length": 256,
    "feed_forward_length": 512,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.key_length": 64,
    "attention.value_length": 64,
    "attention.kv_lora_rank": 128,
    "attention.sliding_window": 128,
    "rope.dimension_count": 32,
    "ssm.conv_kernel": 4,
    "ssm.state_size": 16,
    "ssm.inner_size": 512,
    "ssm.time_step_rank": 16,
    "ssm.group_count": 2,
    "shortconv.l_cache": 3,
    "wkv.head_size": 64,
}


def metadata(name: str) -> dict[str, Any]:
    return {"general.architecture": name} | {f"{name}.{key}": value for key, value in SEED.items()}


@pytest.mark.parametrize("name", GGUF_TYPES)
@settings(max_examples=EXAMPLES)
@given(st.data())
def test_mutated_metadata(name: str, data: st.DataObject) -> None:
    keys = metadata(name)
    for _ in range(data.draw(st.integers(1, 4))):
        key = f"{name}.{data.draw(st.sampled_from(KEYS))}"
        if data.draw(st.booleans()):
            keys[key] = data.draw(st.one_of(VALUES, LISTS))
        else:
            keys.pop(key, None)
    answered(lambda: read_metadata(keys), data.draw(st.sampled_from(["ideal", "llama.cpp", "ollama", "vllm"])))


SPOTS = st.tuples(st.integers(0, 10**6), st.one_of(st.integers(0, 255), st.sampled_from([2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1])))


@pytest.mark.parametrize("name", GGUF_TYPES[::3])
@settings(max_examples=EXAMPLES)
@given(changes=st.lists(SPOTS, max_size=6), end=st.one_of(st.none(), st.integers(0, 2000)))
def test_mutated_headers(tmp_path_factory: pytest.TempPathFactory, name: str, changes: list[tuple[int, int]], end: int | None) -> None:
    """Single bytes, and eight at a time where lengths and counts stand."""
    path: Path = tmp_path_factory.getbasetemp() / f"{name}.gguf"
    lists = {"tokenizer.ggml.tokens": ["a", "bc", ""] * 20, f"{name}.attention.sliding_window_pattern": [True, False] * 4}
    header = bytearray(gguf_bytes(metadata(name) | lists, [Tensor("t", (32, 2)), Tensor("u", (256,), 12)]))
    for position, value in changes:
        piece = bytes([value]) if value < 256 else struct.pack("<Q", value)
        place = position % (len(header) - len(piece) + 1)
        header[place : place + len(piece)] = piece
    path.write_bytes(header if end is None else header[:end])
    answered(lambda: read_gguf(path), "llama.cpp")
    with bounded():
        try:
            weights_bytes(path)
        except REFUSALS as error:
            assert error.message.isprintable()  # noqa: PT017  any refusal will do


#: One model in six of the catalogue.
MODELS = ids()[::6]
COUNTS = st.one_of(st.sampled_from([1, 2, 3, 4, 8, 16, 17, 64, 1000, 1024, 4096, 4097, 32_768, 131_072]), NUMBERS, WORDS)
SIZES = st.one_of(st.sampled_from([0, 1, 2**20, 2**30, 2**36, 10**12, 10**18, 10**18 + 1, "7GiB", "1.5GB", "1,5GiB", "1e3"]), NUMBERS)
NAMES = st.sampled_from([*FORMATS, "auto", "q8_0/q4_0", "fp8/bf16", "", "x"])
CARDS = st.builds(str.__add__, st.sampled_from(list(gpus())), st.sampled_from(["", ":2", ":8", ":0", ":x"]))
WORDS_OF_SETTINGS = st.sampled_from(["auto", "on", "off", "mtp", "eagle", "FLASHINFER", "TRITON_ATTN", "static", "float32", "q4_0", "0.5"])


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=EXAMPLES * 4)
@given(st.data())
def test_a_mutated_question(engine: str, data: st.DataObject) -> None:
    """Any request of a batch: a document whose lines add up, or an error that is no bug."""
    names = [setting.name for setting in get_engine(engine).settings]
    kinds = {
        **dict.fromkeys(("context", "sequences", "shared_prefix", "tensor_parallel"), COUNTS),
        **dict.fromkeys(("pipeline_parallel", "decode_context_parallel"), COUNTS),
        "kv_memory": SIZES,
        "kv_dtype": NAMES,
        "gpu": CARDS,
    }
    request: dict[str, Any] = {"command": data.draw(st.sampled_from(["estimate", "fit"])), "engine": engine}
    request["model"] = data.draw(st.sampled_from(MODELS))
    for key in data.draw(st.lists(st.sampled_from(list(kinds)), max_size=5, unique=True)):
        request[key] = data.draw(kinds[key])
    if names:
        some = st.dictionaries(st.sampled_from(names), st.one_of(COUNTS, WORDS_OF_SETTINGS, st.booleans(), VALUES), max_size=3)
        request["engine_args"] = data.draw(some)
    line = json.dumps(request)
    with bounded():
        found = answer(line)
    text = json.dumps(found, allow_nan=False)
    if not found["ok"]:
        assert found["error"]["exit_code"] != EXIT_INTERNAL, line
        assert f"{found['error']['message']}{found['error']['hint']}".isprintable()
        assert "nput should" not in text
    elif request["command"] == "estimate":
        assert sum(row["bytes"] for row in found["result"]["lines"]) == found["result"]["bytes"]["total"]
