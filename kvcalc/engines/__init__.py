"""The engines, each loaded only when it is asked for.

ideal · transformers · vllm · sglang · llama.cpp · ollama · tensorrt-llm
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from kvcalc.core.errors import UsageError, nearest
from kvcalc.core.units import clean

if TYPE_CHECKING:
    from kvcalc.engines.base.engine import Engine

#: Engine name → module and class. Names are those of `--engine`.
ENGINES: dict[str, tuple[str, str]] = {
    "ideal": ("kvcalc.engines.ideal.engine", "Ideal"),
    "transformers": ("kvcalc.engines.transformers", "Transformers"),
    "vllm": ("kvcalc.engines.vllm", "Vllm"),
    "sglang": ("kvcalc.engines.sglang", "Sglang"),
    "llama.cpp": ("kvcalc.engines.llamacpp", "LlamaCpp"),
    "ollama": ("kvcalc.engines.ollama.engine", "Ollama"),
    "tensorrt-llm": ("kvcalc.engines.tensorrt_llm", "TensorRtLlm"),
}

#: Engines that split a model over devices by its layers unless told otherwise; all others by its heads.
BY_LAYERS = ("llama.cpp", "ollama")


@cache
def get_engine(name: str) -> Engine:
    """The engine of that name. Raises UsageError naming the nearest ones."""
    found = ENGINES.get(name)
    if found is None:
        hint = nearest(name, ENGINES) or "engines: " + ", ".join(ENGINES)
        raise UsageError(f"--engine: unknown engine '{clean(name, 40)}'", hint)
    module, attribute = found
    engine: Engine = getattr(import_module(module), attribute)()
    return engine
