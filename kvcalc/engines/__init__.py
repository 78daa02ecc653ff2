"""The engines, each in a folder of its own and loaded only when it is asked for (registry.py)."""

from __future__ import annotations

from kvcalc.engines.registry import ENGINES, canonical, get_engine, is_engine, names

__all__ = ["ENGINES", "canonical", "get_engine", "is_engine", "names"]
