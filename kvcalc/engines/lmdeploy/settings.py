"""LMDeploy's settings, under the names of its `PytorchEngineConfig`, and what its constructor refuses (messages.py, 0.18.0)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvcalc.core.errors import EngineRejectsError
from kvcalc.core.formats import get_format, one_format
from kvcalc.core.units import clean
from kvcalc.engines.base.engine import Setting
from kvcalc.hardware import get_gpu

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvcalc.core.workload import Workload
    from kvcalc.hardware import Gpu

#: The words of `--kv-dtype` that LMDeploy has a policy for.
POLICY_OF = {"fp16": 0, "bf16": 0, "int4": 4, "int8": 8, "fp8": 16}
#: Every policy, and what it is called in an answer.
POLICIES = {0: "none", 4: "int4", 8: "int8", 16: "fp8", 17: "fp8_e5m2", 42: "turboquant"}
#: `max_batch_size` by what stands in the name of a card (utils.py, get_max_batch_size), and on any other.
_BATCHES = {"a100": 384, "a800": 384, "h100": 1024, "h800": 1024, "l20y": 1024, "h200": 1024}
_OTHER_BATCH = 128
#: The card that is meant where none is named.
USUAL = "h100-80gb"
_HOPPER = 90
_LEAST_BLOCK = 16

SETTINGS: tuple[Setting, ...] = (
    Setting("quant_policy", "int", 0, "0 as the model, 4 int4, 8 int8, 16 fp8 (e4m3), 17 fp8 (e5m2), 42 TurboQuant"),
    Setting(
        "max_batch_size", "int", None, "sequences at once; by the name of the card: A100 384, H100 and H200 1,024, others 128", least=1
    ),
    Setting("cache_max_entry_count", "float", 0.8, "share, for blocks, of what is free after weights, states and runtime memory"),
    Setting("block_size", "int", 64, "tokens of a block"),
    Setting("kernel_block_size", "int", None, "tokens of a kernel's block; block_size where it is not given"),
    Setting("max_prefill_token_num", "int", 8192, "tokens of one prefill, for which runtime memory is kept"),
    Setting("num_gpu_blocks", "int", 0, "blocks, whatever the memory; 0 = what fits"),
    Setting("prefix_cache_state_budget", "int", 0, "state slots more, for checkpoints of the prefix cache"),
    Setting("enable_prefix_caching", "bool", default=False, about="sequences share the blocks of a common prefix"),
    Setting("fp32_mamba_ssm_dtype", "bool", default=False, about="LMDEPLOY_FP32_MAMBA_SSM_DTYPE: Qwen3.5's matrices in float32"),
)


@dataclass(frozen=True, slots=True)
class Server:
    """What the settings come to on one card.

    policy     `quant_policy`                              batch      `max_batch_size` in force
    block      tokens of a block                           kernel     tokens of a kernel's block
    flash_mla  the card has kernels for latents (Hopper or later, and the package flash_mla)
    """

    args: Mapping[str, Any]
    policy: int
    batch: int
    block: int
    kernel: int
    flash_mla: bool


def read_server(args: dict[str, Any], workload: Workload) -> Server:
    """The settings as the engine's constructor judges them; fills `max_batch_size` and `kernel_block_size`. Raises EngineRejectsError."""
    gpu = get_gpu(workload.gpu or USUAL)
    policy = _policy(args, workload)
    block = args["block_size"]
    kernel = args["kernel_block_size"] if args["kernel_block_size"] is not None else block
    for name in ("max_prefill_token_num", "num_gpu_blocks", "prefix_cache_state_budget"):
        if args[name] < 0:
            raise EngineRejectsError(f"LMDeploy: invalid {name} {args[name]:,}", "give 0 or more")
    if not 0 < args["cache_max_entry_count"] < 1:
        raise EngineRejectsError(
            f"LMDeploy: invalid cache_max_entry_count {args['cache_max_entry_count']:g}", "give more than 0 and less than 1"
        )
    if kernel < _LEAST_BLOCK or kernel & (kernel - 1):
        raise EngineRejectsError(f"LMDeploy: kernel_block_size must be >= 16 and a power of 2, and {kernel} is not", "give 16, 32, 64, …")
    if block < kernel or block % kernel:
        raise EngineRejectsError(f"LMDeploy: block_size {block} is no multiple of kernel_block_size {kernel}", "give a multiple")
    args["max_batch_size"] = args["max_batch_size"] or batch_on(gpu)
    args["kernel_block_size"], args["quant_policy"] = kernel, policy
    return Server(args, policy, args["max_batch_size"], block, kernel, (gpu.capability or 0) >= _HOPPER)


def batch_on(gpu: Gpu) -> int:
    """The default of `max_batch_size`: by the first word that stands in the card's name."""
    name = gpu.name.lower()
    return next((size for word, size in _BATCHES.items() if word in name), _OTHER_BATCH)


def _policy(args: Mapping[str, Any], workload: Workload) -> int:
    given: int = args["quant_policy"]
    if given not in POLICIES:
        raise EngineRejectsError(f"LMDeploy: invalid quant_policy {given}", "one of " + ", ".join(map(str, POLICIES)))
    if workload.kv_dtype == "auto":
        return given
    word = one_format(workload.kv_dtype, "LMDeploy").lower()
    name = word if word in ("fp8_e5m2", "turboquant") else get_format(word).name
    found = {"fp8_e5m2": 17, "turboquant": 42, **POLICY_OF}.get(name)
    if found is None:
        raise EngineRejectsError(
            f"LMDeploy has no cache of '{clean(name, 40)}'", "bf16 and fp16 (as the model), int8, int4, fp8, fp8_e5m2 or turboquant"
        )
    if given and found != given:
        raise EngineRejectsError(f"--kv-dtype {clean(word, 40)} and quant_policy {given} name two caches", "give one of them")
    return found
