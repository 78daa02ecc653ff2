"""A model as llama.cpp's allocator sees it: layers in order, each with its tensors, and the widths that its checks look at."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from kvcalc.core.architecture import Layout
from kvcalc.core.errors import EngineRejectsError, UnsupportedArchitectureError
from kvcalc.core.states import Chunked, Compressed, Full, Latent, Recurrent, Shared, Sliding
from kvcalc.engines.base.memo import per_model
from kvcalc.engines.base.windows import window_of
from kvcalc.engines.llamacpp.architectures import ARCHITECTURES, ArchitectureRule, Windows, architecture_name
from kvcalc.engines.llamacpp.tensors import Reading, Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kvcalc.core.architecture import Architecture
    from kvcalc.core.states import AnyState
    from kvcalc.engines.llamacpp.devices import Devices


class Placed(NamedTuple):
    """How many layers have each tensor: in all, and on every device that holds any."""

    counts: dict[Tensor, int]
    by_device: dict[int, dict[Tensor, int]]


@dataclass(frozen=True)
class Model:
    """An architecture under the name that llama.cpp knows it by.

    name          llama.cpp architecture                      windowed   it tells window layers apart
    """

    architecture: Architecture
    name: str
    windowed: bool
    _placed: dict[tuple[Devices, bool], Placed] = field(default_factory=dict, init=False, repr=False, compare=False)

    def placed(self, devices: Devices, *, drafting: bool) -> Placed:
        """The tensors of the model's cache, or of its draft context, over the devices; worked out once. Raises EngineRejectsError."""
        found = self._placed.get((devices, drafting))
        if found is None:
            layers = self.layers(drafting=drafting)
            by_device: dict[int, list[tuple[int, tuple[Tensor, ...]]]] = {}
            for layer in layers:
                by_device.setdefault(devices.place(layer[0], self.layer_count), []).append(layer)
            found = Placed(distinct(layers), {device: distinct(some) for device, some in by_device.items()})
            self._placed[devices, drafting] = found
        return found

    @cached_property
    def heads(self) -> frozenset[int]:
        """Numbers of heads that a split by tensors has to divide: of K and V, and of recurrent matrices."""
        found = {state.kv_heads for state in self.states if hasattr(state, "kv_heads")}
        return frozenset(found | ({state.matrix()[0] for state in self.states if isinstance(state, Recurrent)} - {0}))

    @cached_property
    def rule(self) -> ArchitectureRule:
        """The architecture's row."""
        return ARCHITECTURES[self.name]

    @cached_property
    def is_own_file(self) -> bool:
        """Read from a GGUF file, not converted from a config.json."""
        return self.architecture.traits.gguf_architecture is not None

    @cached_property
    def drafts(self) -> Layout | None:
        """The draft layers that the file has; None where there are none, or the converter drops them."""
        draft = self.architecture.draft
        written = self.is_own_file or self.rule.drafts.written or self.architecture.family in self.rule.drafts.families
        return draft if written else None

    @cached_property
    def states(self) -> dict[AnyState, int]:
        """Every state of the file's layers, draft layers included."""
        found = dict(self.architecture.states)
        for state, layers in (self.drafts.counts if self.drafts else {}).items():
            found[state] = found.get(state, 0) + layers
        return found

    @cached_property
    def layer_count(self) -> int:
        """All layers of the file."""
        return self.architecture.layers.count + (self.drafts.count if self.drafts else 0)

    @cached_property
    def is_expanded(self) -> bool:
        """Latents are stored as heads."""
        return self.rule.expands_latents or bool(self.architecture.traits.gguf_expanded_latent)

    @cached_property
    def is_mla(self) -> bool:
        """K is stored alone: llama.cpp's `is_mla`, or DeepSeek-V4."""
        return not self.is_expanded and any(isinstance(state, Latent | Compressed) for state in self.states)

    @cached_property
    def is_causal(self) -> bool:
        """A token sees only what is before it."""
        return self.architecture.traits.gguf_causal is not False

    @cached_property
    def window(self) -> int:
        """The one window of all window layers, 0 without one. Raises UnsupportedArchitectureError where they differ."""
        if not self.windowed or self.rule.windows is None:
            return 0
        windows = {window for state in self.states if (window := window_of(state))}
        if windows and self.rule.windows.fixed:
            return self.rule.windows.fixed
        if len(windows) > 1:
            raise UnsupportedArchitectureError(f"llama.cpp has one window for all layers, and this model has {sorted(windows)}")
        return max(windows, default=0)

    @cached_property
    def ignored_windows(self) -> int:
        """Layers whose window llama.cpp does not read."""
        return (
            0
            if self.windowed
            else sum(
                layers for state, layers in self.states.items() if window_of(state) and not (isinstance(state, Sliding) and state.nominal)
            )
        )

    @cached_property
    def head_widths(self) -> tuple[set[int], set[int]]:
        """Widths of K and V heads of the model's own layers, which quantised types must divide."""
        keys: set[int] = set()
        values: set[int] = set()
        for state in self.architecture.states:
            if isinstance(state, Full | Sliding | Chunked):
                keys.add(state.head_dim)
                values.add(state.value_width)
            elif isinstance(state, Latent):
                keys.add((state.nope_dim or 0) + state.rope_dim if self.is_expanded else state.latent_dim + state.rope_dim)
                values.add(self._latent_value(state))
        told = self.architecture.traits.gguf_head_dims
        if told is not None:
            keys.add(told[0])
            values.add(told[1])
        return keys, values

    def _latent_value(self, state: Latent) -> int:
        told = self.architecture.traits.gguf_value_length
        if told is not None:
            return told
        if self.untold_value:
            return self.untold_value
        if self.is_expanded:
            return state.value_head_dim or 0
        return state.latent_dim + (state.rope_dim if self.rule.compressed else 0)

    @cached_property
    def untold_value(self) -> int:
        """Width of a V head where the converter leaves it at embedding / heads, else 0."""
        hidden = self.architecture.hidden_dim
        heads = next((state.query_heads for state in self.architecture.states if isinstance(state, Latent)), None)
        return hidden // heads if self.rule.untold_value and not self.is_own_file and hidden and heads else 0

    @cached_property
    def widest_value(self) -> int:
        """Elements of the widest V row of any layer."""
        told = self.architecture.traits.gguf_value_width
        rows = [tensor.width for tensors in self._all_tensors() for tensor in tensors if tensor.store == "value" and not tensor.idle]
        return max([*rows, told or 0])

    def _all_tensors(self) -> Iterator[tuple[Tensor, ...]]:
        reading = self.reading
        for layout in filter(None, (self.architecture.layers, self.drafts)):
            for states in layout.states.values():
                yield reading.tensors(states)

    @cached_property
    def reading(self) -> Reading:
        """How this architecture reads states."""
        return Reading(self.name, self.windowed, self.is_expanded, converted=not self.is_own_file, value=self.untold_value)

    def layers(self, *, drafting: bool = False) -> list[tuple[int, tuple[Tensor, ...]]]:
        """Number and tensors of every layer of the model's cache, or of its draft context. Raises EngineRejectsError without draft layers."""
        trunk = self.architecture.layers
        drafts = self.drafts
        if drafting and (drafts is None or self.architecture.traits.gguf_router):
            raise EngineRejectsError(f"llama.cpp opens no draft context for this model: the file of a {self.name} has no draft layers")
        if drafting and drafts is not None and not self.rule.drafts.repeats_model:
            return _numbered(drafts, self.reading.for_drafts(), trunk.count)
        kept = _numbered(trunk, self.reading, 0)
        if drafts is not None:
            told = self.architecture.traits.gguf_keeps_drafts
            some = range(drafts.count) if self.rule.drafts.kept else told or ()
            kept += [layer for i, layer in enumerate(_numbered(drafts, self.reading, trunk.count)) if i in some]
        return kept


@per_model
def build_model(architecture: Architecture) -> Model:
    """The model behind an architecture. Raises UnsupportedArchitectureError where llama.cpp has none for it."""
    name = architecture_name(architecture)
    rule = ARCHITECTURES[name]
    windowed = rule.windows is not None and rule.windows.layers in (0, architecture.layers.count)
    if architecture.traits.gguf_architecture is None:
        _check_owners(name, rule.owners, architecture.layers)
        if rule.windows is not None:
            architecture = _as_loaded(name, rule.windows, architecture)
    return Model(architecture, name, windowed)


def _check_owners(name: str, wanted: int, layout: Layout) -> None:
    owners = sum(not any(isinstance(state, Shared) for state in layout.states[layer]) for layer in layout.order)
    if wanted and owners != min(wanted, layout.count):
        raise UnsupportedArchitectureError(
            f"llama.cpp keeps the caches of exactly {wanted} {name} layers, and this model has {owners} that own one"
        )


def _as_loaded(name: str, windows: Windows, architecture: Architecture) -> Architecture:
    """The model with its window layers where the loader finds them, if the converter does not write where they are."""
    layout = architecture.layers
    slides = {layer: any(window_of(state) for state in states) for layer, states in layout.states.items()}
    owners = [layer for layer in layout.order if not any(isinstance(state, Shared) for state in layout.states[layer])]
    sliding, full = (next((layer for layer in owners if slides[layer] is wanted), None) for wanted in (True, False))
    if sliding is None and windows.always:
        raise UnsupportedArchitectureError(f"llama.cpp always gives {name} models window layers, and this one says no window")
    if not windows.period or sliding is None or full is None:
        return architecture
    period, dense_first = windows.period, windows.dense_first
    loaded = [sliding if (i % period != 0 if dense_first else i % period < period - 1) else full for i in range(len(owners))]
    if [slides[layer] for layer in loaded] == [slides[layer] for layer in owners]:
        return architecture
    order = (*loaded, *layout.order[len(owners) :])
    states = {layer: layout.states[layer] for layer in dict.fromkeys(order)}
    moved = f"llama.cpp makes one layer in {period} of {name} full, whatever the config says"
    moved_layers = Layout(pattern=order, count=len(order), states=states)
    return replace(architecture, layers=moved_layers, assumptions=(*architecture.assumptions, moved))


def _numbered(layout: Layout, reading: Reading, first: int) -> list[tuple[int, tuple[Tensor, ...]]]:
    by_name = {name: reading.tensors(states) for name, states in layout.states.items()}
    return [(first + i, by_name[name]) for i, name in enumerate(layout.order)]


def distinct(layers: Iterable[tuple[int, tuple[Tensor, ...]]]) -> dict[Tensor, int]:
    """How many layers have each tensor, in order of first appearance."""
    found: dict[Tensor, int] = {}
    for _, tensors in layers:
        for tensor in tensors:
            found[tensor] = found.get(tensor, 0) + 1
    return found
