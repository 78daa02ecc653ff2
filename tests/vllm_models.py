"""Small architectures and short cuts for the tests of the vLLM engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvcalc.core.architecture import Architecture, Layout
from kvcalc.core.states import Cross, Full, GatedDeltaNet, Index, Latent, Mamba1, Mamba2, Sliding, State
from kvcalc.core.workload import Workload
from kvcalc.engines.vllm.engine import Vllm
from kvcalc.sources.schema import read

if TYPE_CHECKING:
    from kvcalc.core.plan import Plan
    from kvcalc.engines.vllm.engine import VllmFitting

ENGINE = Vllm()
GIB = 1024**3

LLAMA_HEADS = Full(kv_heads=8, query_heads=32, head_dim=128)
GPT_OSS = (Sliding(window=128, kv_heads=8, query_heads=64, head_dim=64), Full(kv_heads=8, query_heads=64, head_dim=64))
DEEPSEEK = Latent(latent_dim=512, rope_dim=64, query_heads=128, nope_dim=128, value_head_dim=128)
INDEX = Index(index_dim=128, top_k=2048)
NEXT = GatedDeltaNet(key_heads=16, value_heads=32, key_head_dim=128, value_head_dim=128, conv_kernel=4)
NEXT_HEADS = Full(kv_heads=2, query_heads=16, head_dim=256)
NEMOTRON = Mamba2(heads=128, head_dim=80, state_dim=128, groups=8, conv_kernel=4)
MAMBA = Mamba1(inner_dim=5120, state_dim=16, conv_kernel=4)
WHISPER = (Full(kv_heads=12, query_heads=12, head_dim=64), Cross(kv_heads=12, query_heads=12, head_dim=64, source_tokens=1500))


def model(pattern: list[str], count: int, states: dict[str, Any], family: str = "llama", **fields: Any) -> Architecture:
    """An architecture of `count` layers."""
    named = {name: list(value) if isinstance(value, tuple) else [value] for name, value in states.items()}
    layout = read(Layout, {"pattern": pattern, "count": count, "states": named})
    return read(Architecture, {"id": family, "family": family, "dtype": "bfloat16", "layers": layout} | fields)


def uniform(count: int, *states: State, family: str = "llama", **fields: Any) -> Architecture:
    """An architecture whose layers all keep `states`."""
    return model(["all"], count, {"all": states}, family, **fields)


def llama(**fields: Any) -> Architecture:
    """Llama-3.1-8B."""
    return uniform(32, LLAMA_HEADS, max_context=131072, **fields)


def gpt_oss() -> Architecture:
    """gpt-oss-20b: 12 window and 12 full layers in turn."""
    return model(["window", "full"], 24, {"window": GPT_OSS[0], "full": GPT_OSS[1]}, "gpt_oss", max_context=131072)


def gemma3(layers: int, kv_heads: int, head_dim: int) -> Architecture:
    """Gemma 3: five window layers of 1,024 before each full one."""
    heads = {"kv_heads": kv_heads, "query_heads": 2 * kv_heads, "head_dim": head_dim}
    return model(["w*5", "f"], layers, {"w": Sliding(window=1024, **heads), "f": Full(**heads)}, "gemma3_text", max_context=131072)


def qwen3_next(**fields: Any) -> Architecture:
    """Qwen3-Next-80B: three gated DeltaNet layers before each full one."""
    return model(["net*3", "full"], 48, {"net": NEXT, "full": NEXT_HEADS}, "qwen3_next", max_context=262144, **fields)


def deepseek_v3(**fields: Any) -> Architecture:
    """DeepSeek-V3: 61 layers of latents."""
    return uniform(61, DEEPSEEK, family="deepseek_v3", max_context=163840, **fields)


def nemotron_nano(query_heads: int = 40) -> Architecture:
    """Nemotron-Nano-9B-v2: 27 Mamba-2 and 4 attention layers among layers that keep nothing."""
    heads = Full(kv_heads=8, query_heads=query_heads, head_dim=128)
    return model(["m*27", "a*4"], 31, {"m": NEMOTRON, "a": heads}, "nemotron_h", max_context=131072)


def work(gpu: str | None = "h100-80gb", kv_dtype: str = "auto", args: dict[str, Any] | None = None, **more: Any) -> Workload:
    """A workload, on an H100 unless another card is named."""
    return Workload(gpu=gpu, kv_dtype=kv_dtype, engine_args=args or {}, **more)


def plan(architecture: Architecture, **question: Any) -> Plan:
    """vLLM's plan."""
    return ENGINE.plan(architecture, work(**question))


def fitting(architecture: Architecture, memory: int, **question: Any) -> VllmFitting:
    """vLLM with a fixed memory per GPU."""
    return ENGINE.fitting(architecture, work(**question), memory)
