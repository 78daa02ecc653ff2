"""llama.cpp as kvcalc plans it: a question is read, checked as llama.cpp checks it, and its tensors are added up."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from kvcalc.core.errors import EngineRejectsError, UsageError
from kvcalc.core.plan import Capacity, Plan
from kvcalc.core.units import show_bytes
from kvcalc.engines.base.engine import Engine, PlanFitting, context_messages
from kvcalc.engines.base.search import last_within
from kvcalc.engines.llamacpp.allocation import Allocation
from kvcalc.engines.llamacpp.architectures import FAMILIES
from kvcalc.engines.llamacpp.context import PAD, Context, pad
from kvcalc.engines.llamacpp.devices import check_tensor_split, read_devices
from kvcalc.engines.llamacpp.model import Model, build_model
from kvcalc.engines.llamacpp.settings import (
    SETTINGS,
    Slots,
    Types,
    ggml_name,
    holds_everything,
    is_quantized,
    read_slots,
    read_types,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kvcalc.core.architecture import Architecture
    from kvcalc.core.formats import Format
    from kvcalc.core.workload import Workload
    from kvcalc.engines.base.engine import Setting
    from kvcalc.engines.llamacpp.devices import Devices


@dataclass(frozen=True, slots=True)
class Request:
    """One question to the allocator.

    asked        tokens a sequence that were asked for         requested   n_ctx before padding, all slots together
    flash        flash attention is not off
    """

    model: Model
    args: Mapping[str, Any]
    types: Types
    slots: Slots
    devices: Devices
    asked: int
    requested: int
    flash: bool

    @property
    def is_draft(self) -> bool:
        """The draft context alone."""
        return bool(self.args["mtp_context"])

    @property
    def rollback(self) -> int:
        """Rows of recurrent state that the architecture really keeps to go back to."""
        return self.args["n_rs_seq"] if self.model.rule.rolls_back else 0

    def context(self) -> Context:
        """The geometry in force."""
        batch = min(self.requested, self.args["batch_size"]) if self.model.is_causal else self.args["batch_size"]
        cells = pad(self.requested)
        return Context(
            cells=cells if self.slots.unified else pad(cells // self.slots.count),
            slots=self.slots.count,
            unified=self.slots.unified,
            ubatch=min(batch, self.args["ubatch_size"] or self.args["batch_size"]),
            rollback=self.rollback,
            window=self.model.window,
            everything=holds_everything(self.args),
        )


@dataclass(frozen=True, slots=True)
class LlamaCppFitting(PlanFitting):
    """A context of fixed memory: it holds what its tensors take. The capacity is a search of its own, too much at every step of another.

    allocate    a question → how it was read, and the cache that is allocated for it
    """

    allocate: Callable[[Workload], tuple[Request, Allocation]]

    @property
    def grain(self) -> int:
        """Cells are made in steps of so many (context.py)."""
        return PAD

    def left(self, context: int, sequences: int) -> int:
        """Bytes of the fullest GPU that stay free; none where ctx_size leaves a slot fewer cells than the context."""
        request, allocation = self.allocate(self._asked(context, sequences))
        return -1 if allocation.context.cells < request.asked else self.memory - allocation.per_device()


class LlamaCpp(Engine):
    """llama.cpp b11549."""

    name: ClassVar[str] = "llama.cpp"
    version: ClassVar[str] = "0.6.0 (b11549)"
    by_layers: ClassVar[bool] = True
    remedy_weights: ClassVar[tuple[str, ...]] = ("q8_0", "q4_k_m")
    settings: ClassVar[tuple[Setting, ...]] = SETTINGS

    def knows(self, family: str, class_name: str = "") -> bool:  # noqa: ARG002  no class converts whose family does not
        """A converter writes files of that model_type."""
        return family in FAMILIES

    def plan(self, architecture: Architecture, workload: Workload) -> Plan:
        """The bytes of every tensor of the cache. Raises EngineRejectsError, UnsupportedArchitectureError, UsageError."""
        request, allocation = self.allocate(architecture, workload)
        context = allocation.context
        alone = replace(context, slots=1, unified=False, cells=pad(request.asked))
        one = replace(allocation, context=alone, devices=request.devices.unpadded)
        notes, warnings = self._messages(request, workload, context)
        if allocation.on_host:
            notes.append(f"host memory holds {show_bytes(allocation.on_host)} of the cache, and no GPU does")
        return Plan(
            engine=self.name,
            version=self.version,
            args=_in_force(request, context),
            kv_dtype=request.types.name,
            context=request.asked,
            lines=allocation.lines(),
            per_device=allocation.per_device(),
            per_sequence=one.total,
            per_token=allocation.per_token(),
            growth_per_token=allocation.growth(request.asked),
            fixed=one.fixed,
            notes=tuple(notes),
            warnings=tuple(warnings),
        )

    def capacity(self, architecture: Architecture, workload: Workload, kv_memory: int) -> Capacity:
        """Cells of the largest context that fits into `kv_memory` bytes a device, as `--fit` would choose: a multiple of 256 a stream."""
        _, allocation = self.allocate(architecture, workload)
        context = allocation.context

        def left(cells: int) -> int:
            return kv_memory - replace(allocation, context=replace(context, cells=cells)).per_device()

        most = max(pad(architecture.max_context or 0), context.cells) // PAD
        found = last_within(lambda steps: left(steps * PAD), most, first=most) or 0
        return Capacity(fits=left(context.cells) >= 0, tokens=found * PAD * context.streams)

    def fitting(self, architecture: Architecture, workload: Workload, kv_memory: int) -> LlamaCppFitting:
        """What `kv_memory` bytes per device admit."""
        return LlamaCppFitting(self, architecture, workload, kv_memory, partial(self.allocate, architecture))

    def allocate(self, architecture: Architecture, workload: Workload) -> tuple[Request, Allocation]:
        """How a question is read, and the cache that is allocated for it. Raises all that llama.cpp refuses."""
        request = self._request(architecture, workload)
        check(request)
        return request, Allocation(
            request.model, request.context(), request.types, request.devices, flash=request.flash, draft=request.is_draft
        )

    def _request(self, architecture: Architecture, workload: Workload) -> Request:
        args = self.read_args(workload.engine_args)
        if workload.context == -1:
            raise UsageError("context -1 is vLLM's word for the largest that fits", "ask kvcalc fit for it")
        model = build_model(architecture)
        slots = read_slots(workload.sequences, args)
        asked, requested = self._tokens(architecture, workload, args["ctx_size"], slots)
        return Request(
            model=model,
            args=args,
            types=read_types(workload.kv_dtype, args),
            slots=slots,
            devices=read_devices(workload, args),
            asked=asked,
            requested=requested,
            flash=args["flash_attn"] != "off" and model.rule.flash,
        )

    def _tokens(self, architecture: Architecture, workload: Workload, ctx_size: int | None, slots: Slots) -> tuple[int, int]:
        """Tokens of a sequence, and n_ctx."""
        parts = 1 if slots.unified else slots.count
        if ctx_size is None:
            asked = self.context_of(architecture, workload)
            return asked, asked * parts
        requested = ctx_size or self.context_of(architecture, replace(workload, context=None))
        return workload.context or max(requested // parts, 1), requested

    @staticmethod
    def _messages(request: Request, workload: Workload, context: Context) -> tuple[list[str], list[str]]:
        model, architecture = request.model, request.model.architecture
        told = workload if request.args["ctx_size"] is None else replace(workload, context=request.asked)
        notes, warnings = context_messages(architecture, told, request.asked)
        if not model.is_own_file:
            notes.append(f"planned as the GGUF file that llama.cpp's converter writes: architecture {model.name}, cache in f16 unless told")
        if context.cells != request.asked:
            where = "the pool" if context.unified else "each slot"
            notes.append(
                f"{where} has {context.cells:,} cells: llama.cpp rounds a context of {request.asked:,} up to multiples of 256 a stream"
            )
        if context.cells < request.asked:
            warnings.append(f"a slot has {context.cells:,} cells, fewer than the {request.asked:,} tokens of a sequence: raise ctx_size")
        if workload.sequences > context.slots:
            warnings.append(f"{workload.sequences:,} sequences wait for {context.slots} slots: raise parallel")
        if model.ignored_windows:
            notes.append(f"llama.cpp's {model.name} reads no window: {model.ignored_windows} sliding layers hold every token")
        if model.window and context.everything:
            notes.append(
                "window layers hold the whole context: swa_full is on"
                + (", the library's default" if request.args["swa_full"] is None else "")
            )
        if model.is_expanded:
            notes.append(f"llama.cpp stores the expanded heads of this {model.name} model's latents, not the latents")
        if request.is_draft:
            notes.append("this is the draft context alone; the model's own context is planned without mtp_context")
            if not (model.rule.drafts.computed or model.rule.drafts.repeats_model):
                warnings.append(f"llama.cpp computes no draft with the layers of a {model.name}: the context is sized, and fails to start")
        if request.args["n_rs_seq"] and not request.rollback:
            notes.append(f"n_rs_seq changes nothing: llama.cpp cannot roll back the state of {model.name}")
        if workload.shared_prefix:
            notes.append("a shared prefix changes nothing here: llama.cpp allocates the whole context at once")
        if request.devices.count > 1 and request.devices.mode == "layer" and request.args["tensor_split"] is None:
            notes.append(f"{request.devices.count} GPUs with equal free memory assumed: llama.cpp splits layers by what is free")
        return notes, warnings


def _in_force(request: Request, context: Context) -> dict[str, Any]:
    """All settings, with what llama.cpp made of those that were left open."""
    return dict(request.args) | {
        "ctx_size": context.cells * context.streams,
        "parallel": context.slots,
        "kv_unified": context.unified,
        "cache_type_k": ggml_name(request.types.key),
        "cache_type_v": ggml_name(request.types.value),
        "ubatch_size": context.ubatch,
        "swa_full": context.everything,
        "n_rs_seq": request.rollback,
        "split_mode": request.devices.mode if request.args["split_mode"] == "auto" else request.args["split_mode"],
    }


def check(request: Request) -> None:
    """What llama.cpp refuses to start with (llama-context.cpp `llama_init_from_model`). Raises EngineRejectsError."""
    model, types = request.model, request.types
    if model.architecture.traits.gguf_lacks_windows:
        raise EngineRejectsError(
            f"llama.cpp does not start with a {model.name} file that has a window and no block that slides",
            "its attention.sliding_window_pattern must make a block a window block",
        )
    if model.is_mla and types.key is not types.value:
        raise EngineRejectsError(
            f"llama.cpp stores K and V of {model.name} in one tensor, and cannot give them the types {ggml_name(types.key)} and {ggml_name(types.value)}",
            "use one type for both",
        )
    if is_quantized(types.value) and not request.flash:
        raise EngineRejectsError(
            f"llama.cpp needs flash attention for a V cache of type {ggml_name(types.value)}", "leave flash_attn at auto, or use f16 for V"
        )
    if request.flash:
        for name, form, widths in (("K", types.key, model.head_widths[0]), ("V", types.value, model.head_widths[1])):
            _check_heads(name, form, widths)
    check_tensor_split(model.name, request.devices, model.heads, flash=request.flash)


def _check_heads(name: str, form: Format, widths: set[int]) -> None:
    uneven = sorted(width for width in widths if width % form.block)
    if uneven:
        raise EngineRejectsError(
            f"llama.cpp refuses {name} type {ggml_name(form)}: its blocks of {form.block} do not divide a head of {uneven[0]} elements",
            "use f16",
        )
