"""The engine itself: which cache class a question asks for, and the tensors of every layer in it."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from kvcalc.core.errors import EngineRejectsError, UsageError
from kvcalc.core.formats import get_format, one_format
from kvcalc.core.plan import Plan
from kvcalc.core.units import clean
from kvcalc.engines.base.engine import Engine, Fitting, PlanFitting, Setting, context_messages, default_format
from kvcalc.engines.base.families import unknown_family
from kvcalc.engines.transformers import paged
from kvcalc.engines.transformers.caches import CACHES, Ask
from kvcalc.engines.transformers.families import CACHELESS, FAMILIES, FOREIGN, OTHERWISE
from kvcalc.engines.transformers.quantized import DEFAULTS
from kvcalc.engines.transformers.tensors import EVERY, INT64, CacheTensor, Layer, Rows, windowed

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture
    from kvcalc.core.plan import Capacity
    from kvcalc.core.workload import Workload
    from kvcalc.engines.transformers.stores import Store

#: The types that a model class computes in, and so caches in.
FLOATS = ("fp32", "bf16", "fp16")
#: The first version that caches MLA as its latent; 5.14 caches the expanded heads.
LATENT_SINCE = (5, 15)
_OLDEST, _NEWEST = (5, 0), (5, 24)
_VERSION = re.compile(r"([0-9]{1,3})\.([0-9]{1,3})(?:\.[0-9]{1,3})?", re.ASCII)
#: The settings that mean something to one `cache_implementation` only.
_BELONGS = {
    "max_cache_len": "static",
    **dict.fromkeys(("backend", *DEFAULTS, "decode_steps"), "quantized"),
    **dict.fromkeys((*paged.DEFAULTS, "num_blocks"), "paged"),
}


class Transformers(Engine):
    """Hugging Face transformers: `generate`, and the cache classes behind it."""

    name: ClassVar[str] = "transformers"
    version: ClassVar[str] = "5.24.0"
    settings: ClassVar[tuple[Setting, ...]] = (
        Setting("cache_implementation", "str", "dynamic", "which cache class", ("dynamic", "static", "quantized", "paged")),
        Setting("max_cache_len", "int", None, "static: tokens reserved for a sequence; the context where it is not given", least=1),
        Setting("backend", "str", None, "quantized: quanto where it is not given", ("quanto", "hqq", "fp8")),
        Setting("nbits", "int", None, "quantized: bits of an element; 4 where it is not given", least=1),
        Setting("q_group_size", "int", None, "quantized: elements that share a scale; 64 where it is not given", least=1),
        Setting("residual_length", "int", None, "quantized: tokens that wait in the model's type; 128 where it is not given", least=0),
        Setting("axis_key", "int", None, "quantized: axis along which K is grouped; 0 where it is not given", least=-1),
        Setting("axis_value", "int", None, "quantized: axis along which V is grouped; 0 where it is not given", least=-1),
        Setting(
            "decode_steps", "int", None, "quantized: tokens of the context that came after the prefill; 0 where it is not given", least=0
        ),
        Setting("attn_implementation", "str", None, "paged: sdpa where it is not given; any name with flash in it is flash attention"),
        Setting("model_supports_logits_to_keep", "bool", None, "paged: logits of the last tokens only; true where it is not given"),
        Setting("page_size", "int", None, "paged: tokens of a page; 256 where it is not given", least=1),
        Setting("use_async_batching", "bool", None, "paged: two sets of inputs and outputs; false where it is not given"),
        Setting("num_blocks", "int", None, "paged: blocks of all layers; what fits the memory where it is not given", least=1),
        Setting("max_batch_tokens", "int", None, "paged: tokens of a batch; 8192 where it is not given", least=1),
        Setting("max_memory_percent", "float", None, "paged: share of the free memory; 0.9 where it is not given", least=0.0, most=1.0),
        Setting("max_requests_per_batch", "int", None, "paged: requests at once; 1024 where it is not given", least=1),
        Setting("version", "str", "5.24", "release, 5.0 to 5.24; before 5.15 latent attention is cached as expanded heads"),
    )

    def knows(self, family: str, class_name: str = "") -> bool:  # noqa: ARG002  no class has rules of its own
        """The family has a row."""
        return family in FAMILIES or family in CACHELESS

    def context_of(self, architecture: Architecture, workload: Workload) -> int:
        """The workload's context, else the model's maximum; the paged cache of a model without one is asked for a page.

        Raises UsageError as every engine does.
        """
        if workload.context is None and architecture.max_context is None:
            args = self.read_args(workload.engine_args)
            if args["cache_implementation"] == "paged":
                return int(args["page_size"] or paged.DEFAULTS["page_size"])
        return super().context_of(architecture, workload)

    def capacity(self, architecture: Architecture, workload: Workload, kv_memory: int) -> Capacity | None:
        """Blocks of the paged cache in `kv_memory` free bytes; None for the other caches, which grow or are reserved.

        Raises EngineRejectsError, UsageError, UnsupportedArchitectureError.
        """
        store, ask = self._store(architecture, workload)
        return store.capacity(kv_memory, ask.context, ask.sequences) if isinstance(store, paged.Paged) else None

    def fitting(self, architecture: Architecture, workload: Workload, kv_memory: int) -> Fitting:
        """A memory to be asked again and again. Raises what `plan` raises of a paged cache."""
        if self.read_args(workload.engine_args)["cache_implementation"] != "paged":
            return PlanFitting(self, architecture, workload, kv_memory)
        settled = replace(workload, context=None) if workload.context == -1 else workload
        store, _ = self._store(architecture, settled)
        assert isinstance(store, paged.Paged)  # noqa: S101  CACHES has it under this word
        return PagedFitting(self, architecture, workload, kv_memory, store)

    def plan(self, architecture: Architecture, workload: Workload) -> Plan:
        """The cache's tensors, added up. Raises EngineRejectsError, UsageError, UnsupportedArchitectureError."""
        store, ask = self._store(architecture, workload)
        args, context, notes, steps = ask.args, ask.context, ask.notes, ask.steps
        warnings = ask.warnings
        if isinstance(store, paged.Paged):
            args = args | {name: value for name, value in store.settings.items() if value is not None}
        if workload.shared_prefix:
            notes.append("transformers shares no prefix: every sequence of the batch holds its own copy")
        lines = store.lines(context, steps, workload.sequences)
        alone = store.lines(context, steps, 1)
        per_sequence = sum(line.bytes for line in alone)
        per_token = store.per_token()
        return Plan(
            engine=self.name,
            version=self.version,
            args=args,
            kv_dtype=store.format,
            context=context,
            lines=tuple(lines),
            per_device=sum(line.bytes for line in lines),
            per_sequence=per_sequence,
            per_token=-(-per_token.numerator // per_token.denominator),
            growth_per_token=sum(line.bytes for line in store.lines(context + 1, steps + 1, 1)) - per_sequence,
            fixed=sum(line.bytes for line in alone if line.fixed),
            notes=tuple(notes),
            warnings=tuple(warnings),
        )

    def _store(self, architecture: Architecture, workload: Workload) -> tuple[Store, Ask]:
        """The cache object of a question, and the question as it was read."""
        args = self.read_args(workload.engine_args)
        version = _version(args["version"])
        _check_settings(args)
        _check_devices(workload)
        context = self.context_of(architecture, workload)
        notes, warnings = context_messages(architecture, workload, context)
        model_type = _model_type(architecture, workload, notes)
        tensors = Counter(tensor for kept in tensors_by_layer(architecture, expanded=version < LATENT_SINCE) for tensor in kept)
        _says(architecture, notes)
        ask = Ask(architecture, tensors, model_type, version, args, context, workload.sequences, notes, warnings)
        return CACHES[args["cache_implementation"]](ask), ask


@dataclass(frozen=True, slots=True)
class PagedFitting(Fitting):
    """Free memory under the paged cache: its sectors are worked out from the memory, whatever is asked of them."""

    store: paged.Paged

    @property
    def grain(self) -> int:
        """Tokens of a page."""
        return self.store.page_tokens

    def left(self, context: int, sequences: int) -> int:
        """Sectors that stay free."""
        return self.store.left(self.memory, context, sequences)

    def admits(self, context: int, sequences: int) -> bool:
        """That many sequences of that length fit."""
        return self.left(context, sequences) >= 0


def tensors_by_layer(architecture: Architecture, *, expanded: bool = False) -> list[tuple[CacheTensor, ...]]:
    """The dynamic cache's tensors, layer by layer. Raises UnsupportedArchitectureError for a family without a class."""
    _refuse(architecture)
    if architecture.family in CACHELESS:
        return [()] * architecture.layers.count
    quirk, layout = FAMILIES[architecture.family], architecture.layers
    traits = architecture.traits
    # An encoder runs on at least one token: without one, there is no decode step and no cache. A decoder alone has none.
    least_source = int(bool(traits.is_encoder_decoder) and not traits.is_decoder)
    alone = traits.is_encoder_decoder is False
    layer = Layer(quirk, bool(traits.get(quirk.broadcast)), expanded, least_source, alone)
    tensors = {name: layer.tensors(states) for name, states in layout.states.items()}
    found = [tensors[name] for name in layout.order]
    # Ling's class has no full layer in an incomplete last group; engines that serve it have.
    tail = min(traits.incomplete_group or 0, len(found))
    found[len(found) - tail :] = [found[0]] * tail
    first = next((i for i, kept in enumerate(found) if any(tensor.name == "index" for tensor in kept)), None)
    if quirk.positions and first is not None:
        found[first] = (*found[first], CacheTensor("index", "positions", 1, quirk.positions, EVERY, INT64))
    prompt = traits.soft_prompt
    if prompt:
        found = [(*kept, *(tensor._replace(name=f"{tensor.name}_prompt", rows=Rows("fixed", prompt)) for tensor in kept)) for kept in found]
    return [windowed(kept, window) for kept, window in zip(found, _cache_windows(architecture), strict=True)]


def _cache_windows(architecture: Architecture) -> list[int]:
    """A window a layer, 0 for none, where the file says so of a class that has no layer types of its own. Raises UsageError."""
    said, count = architecture.traits.cache_windows or 0, architecture.layers.count
    windows = [said] * count if isinstance(said, int) else said
    if len(windows) != count:
        raise UsageError(
            f"traits: 'cache_windows' of {clean(architecture.id, 60)} must be a number of tokens, or one for each of {count} layers"
        )
    return list(windows)


def _refuse(architecture: Architecture) -> None:
    family = architecture.family
    if family in OTHERWISE:
        raise unknown_family("transformers", architecture, f"it keeps {OTHERWISE[family]}, and kvcalc counts keys and values")
    if family not in FAMILIES and family not in CACHELESS:
        raise unknown_family("transformers", architecture, "transformers 5.24 has no model class for it" if family in FOREIGN else "")


def _says(architecture: Architecture, notes: list[str]) -> None:
    """Notes on a class that keeps less than its states, or keeps it elsewhere."""
    if architecture.family in CACHELESS:
        notes.append(f"the {architecture.family} class keeps no cache: each step runs over everything again")
    elif FAMILIES[architecture.family].modules:
        notes.append(f"{architecture.family} keeps its recurrent and convolution state in the modules, outside the cache: not counted")


def _version(text: str) -> tuple[int, int]:
    match = _VERSION.fullmatch(text)
    if match is None or not _OLDEST <= (int(match[1]), int(match[2])) <= _NEWEST:
        raise UsageError(f"engine setting version: '{clean(text, 40)}' is not a release that kvcalc knows", "5.0 to 5.24, such as 5.14")
    return (int(match[1]), int(match[2]))


def _check_settings(args: dict[str, Any]) -> None:
    """Refuse a setting that the chosen cache class would not read."""
    for name, implementation in _BELONGS.items():
        if args[name] is not None and args["cache_implementation"] != implementation:
            raise UsageError(
                f"engine setting {name} means nothing to the {args['cache_implementation']} cache",
                f"add cache_implementation={implementation}",
            )


def _check_devices(workload: Workload) -> None:
    for name in ("tensor_parallel", "pipeline_parallel", "decode_context_parallel"):
        if getattr(workload, name) > 1:
            raise EngineRejectsError(
                f"{name.replace('_', ' ')} size {getattr(workload, name)}: kvcalc plans the cache of transformers on one device only",
                "ask a serving engine such as vllm, or ideal",
            )


def _model_type(architecture: Architecture, workload: Workload, notes: list[str]) -> str:
    """The type that the model computes in. Raises EngineRejectsError for a format that only a quantized cache could hold."""
    if workload.kv_dtype != "auto":
        name = get_format(one_format(workload.kv_dtype, "transformers")).name
        if name not in FLOATS:
            raise EngineRejectsError(
                f"transformers caches in the type that the model computes in, and {name} is not one of " + ", ".join(FLOATS),
                "for fewer bits add --engine-arg cache_implementation=quantized, and backend and nbits",
            )
        notes.append(f"the cache follows the type that the model is loaded in: {name}")
        return name
    said, assumed = default_format(architecture)
    if assumed:
        notes.append(assumed)
    name = get_format(said, "dtype").name
    if name not in FLOATS:
        raise EngineRejectsError(
            f"the config's dtype is {name}, and transformers computes in one of " + ", ".join(FLOATS), "say which with --kv-dtype"
        )
    return name
