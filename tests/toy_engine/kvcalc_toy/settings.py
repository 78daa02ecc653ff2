"""Toy's own settings, and the flags of its server."""

from __future__ import annotations

from kvcalc.engines.base.engine import Setting

SETTINGS = (
    Setting("page", "int", 16, "tokens of a page", least=1),
    Setting("memory_share", "float", None, "share of the card that the engine takes", least=0, most=1),
)
SERVER_FLAGS = {"context": "--context", "kv_dtype": "--cache-type", "tensor_parallel": "--ranks", "utilization": "--memory-share"}
