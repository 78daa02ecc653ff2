"""The question: how long, how many, on how many devices, in which format, under which engine settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvcalc.core.errors import UsageError
from kvcalc.core.units import checked_int

if TYPE_CHECKING:
    from collections.abc import Mapping

#: More sequences or devices than any deployment has.
MOST = 10**9


@dataclass(frozen=True, slots=True)
class Workload:
    """One question to an engine.

    context         tokens per sequence, prompt and output together; None = the model's maximum; -1 = the largest that fits
    sequences       sequences held at once
    kv_dtype        "auto", a format, or "K/V"
    tensor_parallel, pipeline_parallel, decode_context_parallel     devices = tensor x pipeline
    shared_prefix   leading tokens that all sequences share
    gpu             accelerator id; only engines whose defaults depend on it read it
    kv_memory       bytes per device left for the cache (fit)
    engine_args     the engine's own settings, under its own names with `_`
    """

    context: int | None = None
    sequences: int = 1
    kv_dtype: str = "auto"
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    decode_context_parallel: int = 1
    shared_prefix: int = 0
    gpu: str | None = None
    kv_memory: int | None = None
    engine_args: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.context is not None and self.context != -1:
            checked_int(self.context, "context", least=1)
        checked_int(self.shared_prefix, "shared_prefix")
        for name in ("sequences", "tensor_parallel", "pipeline_parallel", "decode_context_parallel"):
            if checked_int(getattr(self, name), name, least=1) > MOST:
                raise UsageError(f"{name}: {getattr(self, name)} is more than kvcalc computes", f"at most {MOST:,}")
        if self.kv_memory is not None:
            checked_int(self.kv_memory, "kv_memory", least=0)
        if self.context not in (None, -1):
            self.check_prefix(self.context or 0)

    def check_prefix(self, context: int) -> None:
        """Raise UsageError where the shared prefix is longer than the context in force."""
        if self.shared_prefix > context:
            raise UsageError(
                f"shared prefix: {self.shared_prefix} tokens are more than the context of {context}",
                "the context counts the shared prefix too",
            )

    @property
    def devices(self) -> int:
        """Tensor x pipeline parallel ranks."""
        return self.tensor_parallel * self.pipeline_parallel
