"""Which engines there are: those that kvcalc brings, and those of other packages.

    name ──▶ Home (module, class) ──▶ the engine                        loaded when it is asked for, and only then
                                  └─▶ its launcher, launch, startlog and memory modules, each by itself

A package adds an engine with an entry point of the group `kvcalc.engines`: `toy = "kvcalc_toy.engine:Toy"`. Its other modules stand
beside the one that holds the class. Entry points are looked up only for a name that is none of kvcalc's own, and where all engines
are asked for. Names are read in any case, and an engine may have further ones.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from kvcalc.core.errors import UsageError, nearest
from kvcalc.core.units import clean
from kvcalc.engines.base.folder import beside, folder_of

if TYPE_CHECKING:
    from types import ModuleType

    from kvcalc.engines.base.engine import Engine

#: Entry points of this group are engines.
GROUP = "kvcalc.engines"


class Home(NamedTuple):
    """Where an engine lives.

    module      that holds its class; the folder's other modules stand beside it
    kind        name of the class
    aliases     further names that people type
    """

    module: str
    kind: str
    aliases: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        """The package, or the single module, of the engine."""
        return folder_of(self.module)

    def engine(self) -> Engine:
        """The engine itself. Raises UsageError where a package of somebody else does not bring what it says."""
        try:
            engine: Engine = getattr(import_module(self.module), self.kind)()
        except (ImportError, AttributeError, TypeError) as error:
            if self in ENGINES.values():
                raise
            raise UsageError(f"the engine {clean(self.module)}:{clean(self.kind)} cannot be loaded", clean(str(error), 200)) from error
        return engine


#: kvcalc's own engines, in the order in which they are listed.
ENGINES: dict[str, Home] = {
    "ideal": Home("kvcalc.engines.ideal.engine", "Ideal"),
    "transformers": Home("kvcalc.engines.transformers.engine", "Transformers", ("hf", "huggingface")),
    "vllm": Home("kvcalc.engines.vllm.engine", "Vllm"),
    "sglang": Home("kvcalc.engines.sglang.engine", "Sglang"),
    "llama.cpp": Home("kvcalc.engines.llamacpp.engine", "LlamaCpp", ("llamacpp", "llama-cpp", "llama_cpp", "ggml")),
    "ollama": Home("kvcalc.engines.ollama.engine", "Ollama"),
    "tensorrt-llm": Home("kvcalc.engines.tensorrt_llm.engine", "TensorRtLlm", ("trtllm", "trt-llm", "tensorrt_llm", "tensorrtllm", "trt")),
    "exllamav3": Home("kvcalc.engines.exllamav3.engine", "ExllamaV3", ("exl3", "exllama", "exllama3", "tabbyapi")),
    "lmdeploy": Home("kvcalc.engines.lmdeploy.engine", "LmDeploy"),
    "mlx": Home("kvcalc.engines.mlx.engine", "Mlx", ("mlx-lm", "mlx_lm")),
}


@cache
def installed() -> dict[str, Home]:
    """The engines of other packages, by name; a name of kvcalc's own stays kvcalc's."""
    from importlib.metadata import entry_points  # slow to import, and needed for no engine of kvcalc's own

    found: dict[str, Home] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        name = entry.name.lower()
        if name not in _own_names() and entry.module:
            found.setdefault(name, Home(entry.module, entry.attr))
    return found


def names() -> tuple[str, ...]:
    """Every engine that there is: kvcalc's own, then those of other packages."""
    return (*ENGINES, *installed())


@cache
def canonical(name: str) -> str:
    """The name of the engine that `name` means, whatever its case and spelling. Raises UsageError naming the nearest ones."""
    word = name.strip().lower()
    known = _own_names().get(word) or (word if word in installed() else None) or _aliases_of_others().get(word)
    if known is None:
        hint = nearest(word, [*_own_names(), *installed()]) or "engines: " + ", ".join(names())
        raise UsageError(f"--engine: unknown engine '{clean(name, 40)}'", hint)
    return known


def is_engine(name: str) -> bool:
    """Some engine is called that."""
    try:
        canonical(name)
    except UsageError:
        return False
    return True


def home(name: str) -> Home:
    """Where the engine of that name lives. Raises UsageError for an unknown one."""
    known = canonical(name)
    return ENGINES.get(known) or installed()[known]


@cache
def get_engine(name: str) -> Engine:
    """The engine of that name. Raises UsageError naming the nearest ones."""
    return _engine(canonical(name))


@cache
def _engine(name: str) -> Engine:
    return home(name).engine()


def module(name: str, part: str) -> ModuleType | None:
    """The module `part` of the folder of an engine, such as `launch`; None where it has none. The engine itself is not loaded."""
    return beside(home(name).folder, part)


@cache
def _own_names() -> dict[str, str]:
    return {word: name for name, place in ENGINES.items() for word in (name, *place.aliases)}


@cache
def _aliases_of_others() -> dict[str, str]:
    """Further names of the engines of other packages, which only their classes know."""
    return {alias.lower(): name for name, place in installed().items() for alias in place.engine().aliases}


def forget() -> None:
    """Look for installed engines again: packages may have come or gone."""
    for found in (installed, canonical, get_engine, _engine, beside, _aliases_of_others):
        found.cache_clear()
