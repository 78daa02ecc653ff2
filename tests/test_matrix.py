"""Every engine x minimal architectures of every kind x workloads: a plan that adds up, or a refusal of the right kind.

The architectures are the smallest that keep each kind of state, and a few that no model is: nothing cached, one head on eight ranks,
a window of one token, heads that do not divide. What is asserted holds for every engine; figures are held elsewhere.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from kvcalc.core.errors import EngineRejectsError, KvcalcError, UnsupportedArchitectureError, UsageError
from kvcalc.core.workload import Workload
from kvcalc.engines import ENGINES, get_engine
from kvcalc.questions.estimate import estimate
from kvcalc.questions.fit import fit
from kvcalc.questions.request import Request, parse_request
from kvcalc.sources.catalogue import read_mapping

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture
    from kvcalc.core.plan import Plan

FULL = {"kind": "full", "query_heads": 8, "kv_heads": 4, "head_dim": 64}
SLIDING = FULL | {"kind": "sliding", "window": 512}
LATENT = {"kind": "latent", "latent_dim": 512, "rope_dim": 64, "query_heads": 16, "nope_dim": 128, "value_head_dim": 128}
INDEX = {"kind": "index", "index_dim": 128, "top_k": 2048}
MAMBA1 = {"kind": "mamba1", "inner_dim": 512, "state_dim": 16, "conv_kernel": 4}
MAMBA2 = {"kind": "mamba2", "heads": 16, "head_dim": 64, "state_dim": 128, "conv_kernel": 4}
DELTA = {"kind": "gated_deltanet", "key_heads": 4, "value_heads": 8, "key_head_dim": 64, "value_head_dim": 64, "conv_kernel": 4}
NOTHING = {"kind": "none"}

#: Name → family, class, the layers in order.
MODELS: dict[str, tuple[str, str, list[Any]]] = {
    "full": ("llama", "LlamaForCausalLM", [FULL] * 4),
    "one layer": ("llama", "LlamaForCausalLM", [FULL]),
    "many layers": ("llama", "LlamaForCausalLM", [FULL] * 100),
    "one kv head": ("llama", "LlamaForCausalLM", [FULL | {"kv_heads": 1}] * 4),
    "odd heads": ("llama", "LlamaForCausalLM", [FULL | {"query_heads": 7, "kv_heads": 1, "head_dim": 80}] * 3),
    "one element": ("llama", "LlamaForCausalLM", [FULL | {"query_heads": 1, "kv_heads": 1, "head_dim": 1}]),
    "query heads unknown": ("llama", "LlamaForCausalLM", [{"kind": "full", "kv_heads": 3, "head_dim": 96}] * 3),
    "key and value apart": ("mimo_v2", "MiMoV2FlashForCausalLM", [FULL | {"head_dim": 192, "value_head_dim": 128}] * 3),
    "windows": ("gemma3_text", "Gemma3ForCausalLM", [*[SLIDING] * 5, FULL] * 2),
    "windows of one": ("mistral", "MistralForCausalLM", [SLIDING | {"window": 1}] * 4),
    "chunks": ("llama4_text", "Llama4ForCausalLM", [*[FULL | {"kind": "chunked", "chunk": 2048}] * 3, FULL] * 2),
    "latents": ("deepseek_v3", "DeepseekV3ForCausalLM", [LATENT] * 5),
    "latents and index keys": ("deepseek_v32", "DeepseekV32ForCausalLM", [[LATENT, INDEX]] * 5),
    "compressed": (
        "deepseek_v4",
        "DeepseekV4ForCausalLM",
        [
            {"kind": "latent", "latent_dim": 512, "window": 128},
            [{"kind": "compressed", "latent_dim": 512, "rope_dim": 64, "ratio": 4}, {"kind": "index", "index_dim": 128, "ratio": 4}],
            {"kind": "compressed", "latent_dim": 512, "rope_dim": 64, "ratio": 128},
        ],
    ),
    "mamba 1 alone": ("mamba", "MambaForCausalLM", [MAMBA1] * 4),
    "mamba 2 alone": ("mamba2", "Mamba2ForCausalLM", [MAMBA2] * 4),
    "rwkv alone": ("rwkv7", "", [{"kind": "rwkv", "heads": 16, "head_dim": 64, "hidden_dim": 1024}] * 4),
    "delta and full": ("qwen3_next", "Qwen3NextForCausalLM", [DELTA, DELTA, DELTA, FULL] * 2),
    "side by side": ("falcon_h1", "FalconH1ForCausalLM", [[FULL, MAMBA2]] * 4),
    "mamba and full": ("jamba", "JambaForCausalLM", [MAMBA1, MAMBA1, MAMBA1, FULL] * 2),
    "convolutions": ("lfm2", "Lfm2ForCausalLM", [{"kind": "short_conv", "channels": 1024, "conv_kernel": 3}, FULL] * 3),
    "kda and latents": (
        "kimi_linear",
        "KimiLinearForCausalLM",
        [{"kind": "kda", "heads": 8, "head_dim": 64, "conv_kernel": 4}, LATENT] * 3,
    ),
    "lightning": ("minimax", "MiniMaxForCausalLM", [{"kind": "lightning", "heads": 8, "head_dim": 64}, FULL] * 3),
    "nothing cached": ("llama", "LlamaForCausalLM", [NOTHING] * 4),
    "layers without a cache": ("nemotron_h", "NemotronHForCausalLM", [MAMBA2, NOTHING, FULL, NOTHING] * 2),
    "shared layers": ("gemma3n_text", "Gemma3nForCausalLM", [SLIDING, SLIDING, FULL, {"kind": "shared"}, {"kind": "shared"}]),
    "cross attention": ("whisper", "WhisperForConditionalGeneration", [[FULL, FULL | {"kind": "cross", "source_tokens": 1500}]] * 3),
    "a family of nobody": ("acme", "", [FULL] * 4),
}

#: What is changed about 4,096 tokens of one sequence.
WORKLOADS: list[dict[str, Any]] = [
    {},
    {"context": 1},
    {"context": 4097, "sequences": 3},
    {"context": None},
    {"context": 10**18},
    {"sequences": 10**9},
    {"sequences": 4, "shared_prefix": 1000},
    {"sequences": 4, "shared_prefix": 4096},
    {"kv_dtype": "fp8"},
    {"kv_dtype": "q8_0/q4_0"},
    {"kv_dtype": "fp8_ds_mla"},
    {"kv_dtype": "turboquant_k8v4"},
    {"kv_dtype": "nvfp4"},
    {"kv_dtype": "no_such_format"},
    {"tensor_parallel": 2},
    {"tensor_parallel": 8},
    {"tensor_parallel": 3},
    {"tensor_parallel": 8, "decode_context_parallel": 2},
    {"tensor_parallel": 2, "decode_context_parallel": 3},
    {"pipeline_parallel": 2},
    {"pipeline_parallel": 5000},
    {"gpu": "h100-80gb"},
    {"gpu": "rtx3090-24gb", "kv_dtype": "fp8"},
    {"gpu": "mi300x-192gb"},
]
REFUSALS = (UsageError, EngineRejectsError, UnsupportedArchitectureError)


@cache
def model(name: str, longest: int | None = 65_536) -> Architecture:
    family, class_name, order = MODELS[name]
    states: dict[str, Any] = {}
    names = []
    for entry in order:
        key = next((key for key, known in states.items() if known == entry), f"s{len(states)}")
        states[key] = entry
        names.append(key)
    layers = {"pattern": names, "count": len(names), "states": states}
    return read_mapping(
        {
            "id": name.replace(" ", "-"),
            "family": family,
            "class_name": class_name,
            "dtype": "bfloat16",
            "hidden_dim": 1024,
            "layers": layers,
            "traits": {"vocab_size": 32_000},
        }
        | ({} if longest is None else {"max_context": longest})
    )


def plan(engine: str, name: str, **changes: Any) -> Plan:
    return get_engine(engine).plan(model(name), Workload(**{"context": 4096} | changes))


def attempt(engine: str, architecture: Architecture, workload: Workload) -> Plan | KvcalcError:
    """The plan, or the refusal; any other exception, an InternalError among them, fails the test."""
    try:
        return get_engine(engine).plan(architecture, workload)
    except REFUSALS as error:
        return error


def planned(engine: str, name: str, **changes: Any) -> Plan | None:
    """The plan, or None where the engine refuses in a sentence that can be printed."""
    found = attempt(engine, model(name), Workload(**{"context": 4096} | changes))
    if not isinstance(found, KvcalcError):
        return found
    assert found.message
    assert f"{found.message}{found.hint}".isprintable()
    return None


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", MODELS)
def test_a_plan_adds_up_or_is_refused(engine: str, name: str) -> None:
    for changes in WORKLOADS:
        found = planned(engine, name, **changes)
        if found is None:
            continue
        workload = Workload(**{"context": 4096} | changes)
        assert found.total == sum(line.bytes for line in found.lines), changes
        assert found.per_device <= found.total <= found.per_device * workload.devices, changes
        figures = [found.per_device, found.per_sequence, found.per_token, found.fixed]
        figures += [figure for line in found.lines for figure in (line.bytes, line.slots, line.width, line.layers)]
        assert all(type(figure) is int and figure >= 0 for figure in figures), changes
        assert found.fixed <= found.per_sequence
        if workload.sequences == 1:
            assert found.per_sequence <= found.total


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", MODELS)
def test_more_never_takes_less(engine: str, name: str) -> None:
    """Longer, more, and a shorter common prefix. (DeepSeek-V4 frees the rows of a window that closes, or that slid off a block.)"""
    if name == "compressed" and engine in ("transformers", "tensorrt-llm"):
        return
    if (engine, name) == ("lmdeploy", "windows of one"):  # a block is freed that its window has left
        return
    for steps in (
        [{"context": context} for context in (1, 2, 511, 512, 513, 4096, 4097, 65_536, 100_000)],
        [{"sequences": sequences} for sequences in (1, 2, 3, 7, 64)],
        [{"sequences": 4, "shared_prefix": prefix} for prefix in (4096, 4095, 1000, 17, 1, 0)],
    ):
        totals = [found.total for changes in steps if (found := planned(engine, name, **changes)) is not None]
        assert totals == sorted(totals), steps


#: SGLang's pool is a memory's, and Ollama's context ends at the model's.
@pytest.mark.parametrize("engine", [name for name in ENGINES if name not in ("sglang", "ollama")])
@pytest.mark.parametrize(
    "name", ["full", "odd heads", "key and value apart", "windows", "chunks", "latents", "compressed", "shared layers"]
)
def test_figures_beyond_what_a_float_holds_are_exact(engine: str, name: str) -> None:
    """From a length of whole blocks, windows and chunks on, as many more tokens take as many more bytes: to the byte, at 10^27."""
    whole = 2**50 * 3 * 5 * 7
    for changes in ({}, {"sequences": 99_991}, {"kv_dtype": "q8_0"}):
        found = [planned(engine, name, context=times * whole, **changes) for times in (1, 2, 3, 7)]
        if None in found:
            continue
        one, two, three, seven = (plan.total for plan in found if plan is not None)
        if (engine, name) == ("lmdeploy", "windows"):  # one window for all layers: nothing grows
            assert one == seven
            continue
        assert two - one == three - two, changes
        assert seven - three == 4 * (two - one), changes
        assert one > 2**53
        assert 0 <= one - (two - one) < 2**53, changes  # what does not grow


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", MODELS)
def test_what_can_be_estimated_can_be_fitted(engine: str, name: str) -> None:
    """Whatever the memory; and the answer agrees with itself."""
    for changes in ({"sequences": 3, "shared_prefix": 100}, {"tensor_parallel": 2}):
        if planned(engine, name, **changes) is None:
            continue
        for memory in (0, 10**7, 10**13):
            workload = Workload(**{"context": 4096, "kv_memory": memory} | changes)
            try:
                found = fit(Request(model(name), engine, workload))
            except EngineRejectsError as refused:
                if memory > 10**7 or "does not start" not in refused.message:
                    raise
                continue
            if memory == 0 and found.plan.per_device:
                assert not found.fits
            if found.max_sequences is not None:
                assert found.fits == (found.max_sequences >= workload.sequences)
            if found.max_context is not None:
                assert found.fits == (found.max_context >= 4096)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_prefix_longer_than_the_context_is_refused_however_the_context_came_about(engine: str) -> None:
    for name in ("full", "windows", "mamba 2 alone", "latents"):
        for context in (1024, None):
            with pytest.raises(REFUSALS) as caught:
                plan(engine, name, context=context, shared_prefix=10**7, sequences=4)
            if isinstance(caught.value, UsageError):
                assert "shared prefix: 10000000 tokens are more than the context of" in caught.value.message


@pytest.mark.parametrize("engine", ENGINES)
def test_the_largest_that_fits_is_no_estimate(engine: str) -> None:
    for name in ("full", "mamba 2 alone"):
        with pytest.raises(REFUSALS) as caught:
            plan(engine, name, context=-1)
        assert "context -1" in caught.value.message or not isinstance(caught.value, UsageError)
    with pytest.raises(UsageError, match="context -1"):
        estimate(parse_request({"model": "llama-2-7b", "context": -1, "engine": engine}))
    found = fit(parse_request({"model": "llama-2-7b", "context": -1, "engine": engine, "kv_memory": "1GiB"}))
    assert found.fits
    assert found.plan.context == found.max_context


@pytest.mark.parametrize("engine", ENGINES)
def test_a_model_without_a_maximum_needs_a_context(engine: str) -> None:
    for name in ("full", "mamba 1 alone"):
        architecture = model(name, None)
        if isinstance(attempt(engine, architecture, Workload(context=1024)), KvcalcError):
            continue
        found = attempt(engine, architecture, Workload())
        if engine in ("ollama", "sglang"):  # they have defaults of their own
            assert not isinstance(found, KvcalcError)
        else:
            assert isinstance(found, UsageError)
            assert "does not say its maximum context" in found.message


@pytest.mark.parametrize("engine", [name for name in ENGINES if name not in ("ideal", "llama.cpp")])
def test_k_and_v_apart_are_refused_in_so_many_words(engine: str) -> None:
    with pytest.raises(EngineRejectsError) as caught:
        plan(engine, "full", kv_dtype="fp8/bf16")
    assert "K and V" in caught.value.message


@pytest.mark.parametrize("engine", ["ideal", "vllm", "sglang", "tensorrt-llm"])
def test_query_heads_that_do_not_divide_cannot_be_split(engine: str) -> None:
    with pytest.raises(EngineRejectsError, match="8"):
        plan(engine, "one kv head", tensor_parallel=3)
    one = plan(engine, "one kv head")
    assert plan(engine, "one kv head", tensor_parallel=8).per_device == one.per_device


#: What a setting may be given as by mistake, or by malice.
NONSENSE: list[Any] = [
    *("", "x", "0", "-1", "1.5", "nan", "inf", "1e400", "1_000", "\u0663", "\xb2", "\x1b[31m", "none", "true", "1,2,3", "[1]", "9" * 30),
    *(0, -1, 7, 1.5, float("nan"), float("inf"), 10**30, True, None, [], [1], ["a"], [None], [[1]], [-5, 0], {}, {"a": 1}),
]


@pytest.mark.parametrize(("engine", "setting"), [(engine, setting.name) for engine in ENGINES for setting in get_engine(engine).settings])
def test_settings_take_nothing_for_granted(engine: str, setting: str) -> None:
    for value in NONSENSE:
        for name in ("full", "windows", "delta and full"):
            planned(engine, name, sequences=2, engine_args={setting: value})


@pytest.mark.parametrize("engine", ENGINES)
def test_a_setting_that_does_not_exist_is_refused(engine: str) -> None:
    for name in ("no_such_setting", "", "\x1b[31m", "block_sise"):
        with pytest.raises(UsageError) as caught:
            plan(engine, "full", engine_args={name: 1})
        assert caught.value.message.isprintable()


@pytest.mark.parametrize(
    ("engine", "name", "args", "said"),
    [
        ("vllm", "mamba 2 alone", {"attention_backend": "NOT_A_BACKEND"}, "unknown backend"),
        ("vllm", "full", {"kv_cache_dtype_skip_layers": ["x"]}, "is no layer of this model"),
        ("vllm", "full", {"kv_cache_dtype_skip_layers": [4]}, "numbers from 0 to 3"),
        ("vllm", "full", {"gpu_memory_utilization": 1.5}, "at most 1"),
        ("sglang", "full", {"mem_fraction_static": 16}, "at most 1"),
    ],
)
def test_a_setting_that_would_do_nothing_is_refused(engine: str, name: str, args: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan(engine, name, engine_args=args)
    assert said in f"{caught.value.message} {caught.value.hint}"
