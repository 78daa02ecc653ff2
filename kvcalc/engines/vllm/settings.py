"""vLLM's flags, and what one start of the engine resolves them to (vLLM 0.33, engine/arg_utils.py, config/vllm.py).

F = concurrent batches x max_num_batched_tokens          tokens scheduled and not yet settled
concurrent batches = pipeline stages + 1 with asynchronous scheduling (the default), else pipeline stages

max_num_batched_tokens    card                                API server    LLM class    max_num_seqs
                          at least 160 GiB                    16384         16384        1024
                          at least 70 GiB, and no A100        8192          16384        1024
                          others                              2048          8192         256
at most max_num_seqs x max_model_len
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvcalc.core.errors import EngineRejectsError
from kvcalc.core.units import GIB
from kvcalc.engines.base.engine import Setting
from kvcalc.engines.vllm.speculation import METHODS, OTHER_METHODS
from kvcalc.hardware import get_gpu, parse_gpu

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvcalc.hardware import Gpu

VERSION = "0.33.0"

#: The card whose defaults hold where no GPU is given.
DEFAULT_GPU = "h100-80gb"

API_SERVER, LLM_CLASS = "api_server", "llm_class"
MAMBA_DTYPES = ("auto", "float32", "float16", "bfloat16")

SETTINGS: tuple[Setting, ...] = (
    Setting("block_size", "int", None, "tokens per block; the engine may raise it", least=1),
    Setting("max_num_batched_tokens", "int", None, "tokens of one step; default by card and usage", least=1),
    Setting("max_num_seqs", "int", None, "sequences of one step; default by card", least=1),
    Setting("enable_prefix_caching", "bool", None, "default: on, except for pure recurrent and encoder-decoder models"),
    Setting("async_scheduling", "bool", None, "a second batch in flight; default: on"),
    Setting("disable_hybrid_kv_cache_manager", "bool", None, "charge window layers as full attention; default: off"),
    Setting("num_gpu_blocks_override", "int", None, "blocks, whatever the memory", least=1),
    Setting("kv_cache_dtype_skip_layers", "list", [], "layer numbers, or sliding_window, that keep the model's type"),
    Setting("mamba_cache_dtype", "str", "auto", "type of convolution (and recurrent) states", MAMBA_DTYPES),
    Setting("mamba_ssm_cache_dtype", "str", "auto", "type of recurrent states", MAMBA_DTYPES),
    Setting("num_speculative_tokens", "int", None, "draft tokens a step", least=1),
    Setting("speculative_method", "str", None, "speculative decoding", (*METHODS, *OTHER_METHODS)),
    Setting("usage_context", "str", API_SERVER, "api_server (vllm serve) or llm_class (the LLM class)", (API_SERVER, LLM_CLASS)),
    Setting("attention_backend", "str", None, "a backend by vLLM's name, such as FLASH_ATTN; default: by card and model"),
    Setting("gpu_memory_utilization", "float", 0.92, "share of the card's memory, where the budget is a card's", least=0, most=1),
)

_LARGE, _MEDIUM = 160 * GIB, 70 * GIB


@dataclass(frozen=True, slots=True)
class Card:
    """The facts of a card that defaults depend on: compute capability x 10 and the tier of its scheduler."""

    id: str
    capability: int
    batched_tokens: Mapping[str, int]
    sequences: int


def read_card(gpu: str | None) -> Card:
    """The card behind `--gpu`, or an H100. Raises UsageError, EngineRejectsError for a card that is not CUDA's."""
    found = get_gpu(DEFAULT_GPU) if gpu is None else parse_gpu(gpu)[0]
    if found.capability is None:
        raise EngineRejectsError(f"kvcalc knows vLLM's rules for NVIDIA cards, and {found.id} is none", "choose an NVIDIA card")
    api, offline, sequences = _tier(found)
    return Card(found.id, found.capability, {API_SERVER: api, LLM_CLASS: offline}, sequences)


def _tier(gpu: Gpu) -> tuple[int, int, int]:
    if gpu.memory >= _LARGE:
        return 16384, 16384, 1024
    if gpu.memory >= _MEDIUM and "a100" not in gpu.name.lower():
        return 8192, 16384, 1024
    return 2048, 8192, 256


@dataclass(frozen=True, slots=True)
class Scheduler:
    """What decides how many tokens are in flight."""

    batched_tokens: int
    batched_given: bool
    sequences: int
    batches: int
    chunked_prefill: bool

    def step_tokens(self, context: int) -> int:
        """max_num_batched_tokens at this max_model_len."""
        if self.batched_given:
            return self.batched_tokens
        step = self.batched_tokens if self.chunked_prefill else max(self.batched_tokens, context)
        return min(step, self.sequences * context)

    def in_flight(self, context: int) -> int:
        """F: tokens that are scheduled and not yet settled."""
        return self.batches * self.step_tokens(context)


def read_scheduler(args: Mapping[str, Any], card: Card, stages: int, *, encoder_decoder: bool) -> Scheduler:
    """The scheduler's limits: as given, else the card's tier."""
    given = args["max_num_batched_tokens"]
    asynchronous = args["async_scheduling"] is not False
    return Scheduler(
        batched_tokens=given or card.batched_tokens[args["usage_context"]],
        batched_given=given is not None,
        sequences=args["max_num_seqs"] or card.sequences,
        batches=stages + 1 if asynchronous else stages,
        chunked_prefill=not encoder_decoder,
    )


#: A setting of kvcalc → the flag of `vllm serve` that has the same values.
SERVER_FLAGS = {
    "context": "--max-model-len",
    "kv_dtype": "--kv-cache-dtype",
    "tensor_parallel": "--tensor-parallel-size",
    "pipeline_parallel": "--pipeline-parallel-size",
    "utilization": "--gpu-memory-utilization",
}
