"""TensorRT-LLM's options that change a byte of its cache: those of `kv_cache_config`, and four of the LLM itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvcalc.core.errors import UsageError
from kvcalc.engines.base.engine import Setting

VERSION = "main 2026-11 (source read)"

#: Tokens of a block where nothing else is said; DeepSeek-V4 has its own, and so has Kimi K3.
TOKENS_PER_BLOCK = 32
#: Share of the free memory that the cache takes (KvCacheConfig.free_gpu_memory_fraction).
FREE_FRACTION = 0.9
#: Tokens of one step (trtllm-serve's max_num_tokens).
STEP_TOKENS = 8192
#: How full the second manager's pools may be for a request to be resumed (KvCacheConfig.max_util_for_resume).
RESUME = 0.95
_WORDS = {True: "true", False: "false"}


@dataclass(frozen=True, slots=True)
class ThreeWay(Setting):
    """A setting that is `auto`, `true` or `false`, in JSON and YAML also a truth value."""

    def read(self, value: object) -> Any:
        """One of the three words. Raises UsageError."""
        word = _WORDS[value] if isinstance(value, bool) else value.strip().lower() if isinstance(value, str) else value
        return Setting.read(self, word)


@dataclass(frozen=True, slots=True)
class Weights(Setting):
    """A list of numbers greater than 0, as decimal text or numbers."""

    def read(self, value: object) -> Any:
        """The numbers as decimal text, exact. Raises UsageError."""
        found = Setting.read(self, value)
        if found is None:
            return None
        number = Setting(self.name, "float", None, self.about, least=0.0)
        weights = [str(item) for item in found if number.read(item)]
        if not weights or len(weights) < len(found):
            raise UsageError(f"engine setting {self.name}: every weight is a number greater than 0", self.about)
        return weights


SETTINGS = (
    Setting("version", "str", "main", "release: main, or 1.0 to 1.2, which have the first cache manager only"),
    ThreeWay(
        "use_kv_cache_manager_v2",
        "str",
        "auto",
        "which of the two cache managers; auto: what the model's class prefers",
        ("auto", "true", "false"),
    ),
    Setting("tokens_per_block", "int", None, "tokens of a block; 32, DeepSeek-V4 128, Kimi K3 64", least=1),
    Setting("free_gpu_memory_fraction", "float", FREE_FRACTION, "share of the free memory that the cache takes", least=0.0),
    Setting("max_gpu_total_bytes", "int", None, "most bytes of the cache on a device, beside the share of the free memory", least=1),
    Setting(
        "max_attention_window",
        "list",
        None,
        "window of each layer, repeated over the layers; without it the first manager keeps all in full, the second takes the model's",
    ),
    Setting("max_tokens", "int", None, "most tokens in the cache", least=1),
    Setting("enable_attention_dp", "bool", default=False, about="every tensor parallel rank attends for its own requests"),
    Setting(
        "mamba_ssm_cache_dtype",
        "str",
        "auto",
        "type of the recurrent state; auto: the config's mamba_ssm_cache_dtype, else the model's type",
        ("auto", "float32", "bfloat16", "float16"),
    ),
    Setting("mamba_state_cache_interval", "int", 0, "tokens between snapshots of recurrent state; 0: none", least=0),
    Setting(
        "max_batch_size", "int", None, "requests at once, for which recurrent state is kept; default: the sequences asked for", least=1
    ),
    Setting("max_num_tokens", "int", STEP_TOKENS, "tokens of one step", least=1),
    Setting("avg_seq_len", "int", None, "second manager: the usual length of a request, for which memory is divided", least=1),
    Weights(
        "pool_ratio", "list", None, "second manager: the share of each life cycle (windows, recurrent state) in the memory, like 0.3,0.7"
    ),
    Setting(
        "max_util_for_resume", "float", RESUME, "second manager: how full pools may be for a request to be resumed", least=0.01, most=1.0
    ),
)
