"""ExLlamaV3: what its cache allocates when a model is loaded, whatever is asked of it later.

bytes = Σ over layers   pages of `max_num_tokens` tokens, one pool for all sequences   +   `max_batch_size` slots of rings and states

pages    whole pages of 256 tokens, fp16 or k_bits and v_bits an element with half a bit of scales
rings    window layers of some classes: window and two pages more, in fp16, a ring a slot; elsewhere the window is only a mask
states   recurrent matrices twice, convolution columns, inputs of a draft: a slot each

classes.py has the engine's architectures, tensors.py the sizes of every state.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

from kvcalc.core.errors import EngineRejectsError
from kvcalc.core.formats import get_format, one_format
from kvcalc.core.plan import Capacity, Line, Plan
from kvcalc.core.states import Chunked, Sliding
from kvcalc.core.units import clean
from kvcalc.engines.base.engine import Engine, Setting, context_messages
from kvcalc.engines.base.memo import per_model
from kvcalc.engines.exllamav3.classes import class_of, find_class, layer_order
from kvcalc.engines.exllamav3.tensors import PAGE, Storage, Tensor, layer_tensors
from kvcalc.engines.ideal.engine import stages_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvcalc.core.architecture import Architecture
    from kvcalc.core.workload import Workload

#: The words for the type of recurrent matrices, and its bytes.
_STATE_BYTES = {"half": 2, "fp16": 2, "float16": 2, "float": 4, "fp32": 4, "float32": 4}
_LEAST_BITS, _MOST_BITS = 2, 8
#: Sequences that the generator runs at once where no slots limit them (generator.py, max_batch_size).
MOST_JOBS = 256


@dataclass(frozen=True)
class Allocation:
    """The tensors of some layers, how many of the layers have each, and how many slots there are."""

    tensors: Mapping[Tensor, int]
    slots: int

    @cached_property
    def page_bytes(self) -> int:
        """Bytes of one page of 256 tokens in all the layers."""
        return sum(layers * tensor.bytes(PAGE, 0) for tensor, layers in self.tensors.items())

    @cached_property
    def slot_bytes(self) -> int:
        """Bytes of one sequence's slot in all the layers."""
        return sum(layers * tensor.bytes(0, 1) for tensor, layers in self.tensors.items())

    def bytes(self, tokens: int) -> int:
        """Bytes of the layers with a pool of `tokens`."""
        return tokens // PAGE * self.page_bytes + self.slots * self.slot_bytes


class ExllamaV3(Engine):
    """ExLlamaV3, the engine of TabbyAPI and of text-generation-webui's ExLlamaV3 loaders."""

    name: ClassVar[str] = "exllamav3"
    title: ClassVar[str] = "ExLlamaV3"
    version: ClassVar[str] = "1.6.5"
    settings: ClassVar[tuple[Setting, ...]] = (
        Setting(
            "max_num_tokens", "int", None, "tokens of the pool, in whole pages of 256; context x sequences where it is not given", least=1
        ),
        Setting("k_bits", "int", None, "bits of an element of K, 2 to 8; fp16 where neither is given"),
        Setting("v_bits", "int", None, "bits of an element of V, 2 to 8; fp16 where neither is given"),
        Setting("max_batch_size", "int", 16, "slots of rings and recurrent states, allocated at the start", least=1),
        Setting("max_history", "int", 0, "draft tokens that a recurrent state can take back", least=0),
        Setting("recurrent_dtype", "str", "half", "type of the matrices of Gated DeltaNet and KDA: half or float; Mamba-2 is always float"),
        Setting("swa_full", "bool", default=False, about="full pages for window layers too, instead of rings"),
    )

    by_layers: ClassVar[bool] = True
    #: No format of kvcalc's is one of this cache's: its own settings say how many bits an element has.
    remedy_formats: ClassVar[tuple[str, ...]] = ()
    server_flags: ClassVar[Mapping[str, str]] = {"context": "--max-seq-len"}
    rules: ClassVar[tuple[str, ...]] = (
        "Everything is allocated when the model is loaded: a longer prompt takes nothing more, and one that is too long is refused.",
        "Keys and values of all sequences lie in one pool of max_num_tokens, in pages of 256 tokens, in fp16 or in 2 to 8 bits and half a bit of scales.",
        "Windows are a mask over full pages, except in the few classes that keep a ring for each of max_batch_size slots.",
        "Recurrent states have a slot for each of max_batch_size sequences, used or not: in hybrids that is the larger part, and the first thing to lower.",
        "A model goes by the class in its config.json; what that class does not load is refused.",
    )

    def knows(self, family: str, class_name: str = "") -> bool:
        """The engine has an architecture for that class, or for that family where no class is named."""
        return find_class(family, class_name) is not None

    def plan(self, architecture: Architecture, workload: Workload) -> Plan:
        """Every tensor of the cache, added up. Raises EngineRejectsError, UsageError, UnsupportedArchitectureError."""
        args = self.read_args(workload.engine_args)
        context = self.context_of(architecture, workload)
        notes, warnings = context_messages(architecture, workload, context)
        stages = _stages(architecture, workload, args)
        held = stages[0] if len(stages) == 1 else Allocation(sum((Counter(stage.tensors) for stage in stages), Counter()), stages[0].slots)
        tokens = _pool(args, context, workload.sequences)
        one = _pages(context) * PAGE
        notes += _notes(architecture, held, args, workload, tokens)
        warnings += _warnings(held, tokens, context, workload.sequences)
        return Plan(
            engine=self.name,
            version=self.version,
            args=args,
            kv_dtype="fp16" if args["k_bits"] is None else f"k{args['k_bits']}v{args['v_bits']}",
            context=context,
            lines=tuple(_line(tensor, layers, tokens, one, held.slots) for tensor, layers in held.tensors.items()),
            per_device=max(stage.bytes(tokens) for stage in stages),
            per_sequence=_pages(context) * held.page_bytes + held.slot_bytes,
            per_token=_per_token(held),
            growth_per_token=held.page_bytes if args["max_num_tokens"] is None and context % PAGE == 0 else 0,
            fixed=held.slot_bytes,
            notes=tuple(notes),
            warnings=tuple(warnings),
        )

    def capacity(self, architecture: Architecture, workload: Workload, kv_memory: int) -> Capacity:
        """The pages that stand beside the slots in `kv_memory` bytes a device, or those of `max_num_tokens`."""
        args = self.read_args(workload.engine_args)
        context = self.context_of(architecture, workload)
        stages = _stages(architecture, workload, args)
        left = [kv_memory - stage.slots * stage.slot_bytes for stage in stages]
        has_slots = any(stage.slot_bytes for stage in stages)
        paged = [stage.page_bytes for stage in stages if stage.page_bytes]
        pages = min((max(rest, 0) // stage.page_bytes for rest, stage in zip(left, stages, strict=True) if stage.page_bytes), default=0)
        given = args["max_num_tokens"]
        starts = min(left) >= 0 and (given is None or given // PAGE <= pages or not paged)
        if given is not None:
            pages = given // PAGE
        seats = args["max_batch_size"] if has_slots else MOST_JOBS
        holds = not paged or workload.sequences * _pages(context) <= pages
        return Capacity(
            fits=starts and holds and workload.sequences <= seats,
            tokens=pages * PAGE if paged else None,
            concurrency=min(pages / _pages(context), seats) if paged else seats,
            blocks=pages if paged else None,
            block_bytes=sum(paged) if paged else None,
            block_size=PAGE if paged else None,
            state_slots=args["max_batch_size"] if has_slots else None,
        )


def _stages(architecture: Architecture, workload: Workload, args: Mapping[str, Any]) -> tuple[Allocation, ...]:
    """The layers of each card. Raises EngineRejectsError for what the engine refuses, UnsupportedArchitectureError."""
    storage = _storage(args, workload, class_of(architecture).ring)
    if workload.tensor_parallel > 1 or workload.decode_context_parallel > 1:
        raise EngineRejectsError(
            "kvcalc plans ExLlamaV3 on one card, or with its layers over several: how its tensor parallelism cuts heads is not known here",
            "split the layers with --pp, which is what ExLlamaV3 does by default",
        )
    return _allocated(architecture, storage, workload.pipeline_parallel, args["max_batch_size"])


@per_model
def _allocated(architecture: Architecture, storage: Storage, cards: int, slots: int) -> tuple[Allocation, ...]:
    layout = architecture.layers
    by_name = {name: Counter(layer_tensors(states, storage, architecture)) for name, states in layout.states.items()}
    names = iter(layer_order(architecture, class_of(architecture)))
    return tuple(
        Allocation(sum((by_name[name] for name in islice(names, len(stage))), Counter()), slots) for stage in stages_of(layout, cards)
    )


def _storage(args: Mapping[str, Any], workload: Workload, ring: int | None) -> Storage:
    """The settings, as the engine's constructors would judge them. Raises EngineRejectsError."""
    bits = (args["k_bits"], args["v_bits"])
    if workload.kv_dtype != "auto" and get_format(one_format(workload.kv_dtype, "ExLlamaV3")).name != "fp16":
        raise EngineRejectsError(
            f"ExLlamaV3 caches in fp16, or in 2 to 8 bits of its own, and '{workload.kv_dtype}' is neither",
            "for fewer bits give both, such as -E k_bits=6 -E v_bits=5",
        )
    if workload.kv_dtype != "auto" and bits != (None, None):
        raise EngineRejectsError(f"--kv-dtype {workload.kv_dtype} and k_bits, v_bits name two caches", "give one of them")
    if (bits[0] is None) != (bits[1] is None):
        raise EngineRejectsError("ExLlamaV3's quantised cache takes k_bits and v_bits together, and one is missing", "give both")
    for name, value in zip(("k_bits", "v_bits"), bits, strict=True):
        if value is not None and not _LEAST_BITS <= value <= _MOST_BITS:
            raise EngineRejectsError(f"ExLlamaV3: {name} {value}: a quantised cache must be from 2 to 8 bits", "give 2 to 8")
    if args["max_num_tokens"] is not None and args["max_num_tokens"] % PAGE:
        up = _pages(args["max_num_tokens"]) * PAGE
        raise EngineRejectsError(
            f"ExLlamaV3: max_num_tokens must be a multiple of {PAGE}, and {args['max_num_tokens']:,} is none",
            f"give {up}, to which TabbyAPI rounds it up",
        )
    state = _STATE_BYTES.get(str(args["recurrent_dtype"]).lower().removeprefix("torch."))
    if state is None:
        raise EngineRejectsError(
            f"ExLlamaV3: recurrent state dtype must be float32 or float16, and '{clean(str(args['recurrent_dtype']), 40)}' is neither",
            "give half or float",
        )
    return Storage(*bits, args["max_history"], state, None if args["swa_full"] else ring)


def _pages(tokens: int) -> int:
    return -(-tokens // PAGE)


def _pool(args: Mapping[str, Any], context: int, sequences: int) -> int:
    """Tokens of the pool: `max_num_tokens`, else those of the question in whole pages."""
    given: int | None = args["max_num_tokens"]
    return given if given is not None else _pages(context * sequences) * PAGE


def _per_token(held: Allocation) -> int:
    """What a token takes in pages and in rings; rows of several tokens count by a token's part, rounded up."""
    of_a_page = sum(
        layers * tensor.row * (PAGE // tensor.ratio if tensor.ratio else PAGE if tensor.is_ring else 0)
        for tensor, layers in held.tensors.items()
    )
    return -(-of_a_page // PAGE)


def _line(tensor: Tensor, layers: int, tokens: int, one: int, slots: int) -> Line:
    if tensor.ratio:
        rows = f"{tensor.held(tokens, slots):,} rows of {tokens:,} tokens" if tensor.ratio > 1 else f"{tokens:,} tokens"
    else:
        rows = f"{tensor.rows:,} rows x {slots:,} slots"
    return Line(
        state=tensor.state,
        layers=layers,
        buffer=tensor.buffer,
        width=tensor.width,
        format=tensor.format,
        slots=tensor.held(one, 1),
        bytes=layers * tensor.bytes(tokens, slots),
        formula=f"{layers} layers x {rows} x {tensor.row:,} B",
        fixed=not tensor.ratio,
    )


def _notes(architecture: Architecture, held: Allocation, args: Mapping[str, Any], workload: Workload, tokens: int) -> list[str]:
    """The assumptions, and what the engine makes of the model."""
    said = []
    if args["max_num_tokens"] is None:
        said.append(f"max_num_tokens taken from the question: {tokens:,} tokens for all sequences, in whole pages of {PAGE}")
    if architecture.dtype not in (None, "float16", "fp16") and args["k_bits"] is None:
        said.append("ExLlamaV3 caches in fp16, whatever the model's own type")
    if held.slot_bytes:
        said.append(
            f"{held.slots:,} slots (max_batch_size) of {held.slot_bytes:,} B each are allocated at the start, whatever the context; "
            "TabbyAPI's own default is 4 slots for a model with recurrent states, else 128"
        )
    if class_of(architecture).ring is None and any(isinstance(state, Sliding | Chunked) for state in architecture.states):
        said.append("ExLlamaV3 keeps full pages on the window layers of this model: the window is only a mask")
    if workload.pipeline_parallel > 1:
        said.append("layers split evenly over the cards; ExLlamaV3 fills one card after the other by what its layers weigh")
    if any(tensor.buffer == "ngram_ids" for tensor in held.tensors):
        said.append("the tokens behind the n-grams lie in host memory, and count here as the engine counts them")
    if workload.shared_prefix:
        said.append("pages of a shared prefix are shared within the pool, which is allocated whole either way")
    return said


def _warnings(held: Allocation, tokens: int, context: int, sequences: int) -> list[str]:
    """Where the pool or the slots hold less at once than was asked."""
    said = []
    at_once = tokens // PAGE // _pages(context)
    if held.page_bytes and at_once < sequences:
        said.append(
            f"a pool of {tokens:,} tokens is too small for a sequence of {context:,}"
            if not at_once
            else f"a pool of {tokens:,} tokens holds {at_once:,} sequences of {context:,} at once, and the others wait"
        )
    if held.slot_bytes and sequences > held.slots:
        said.append(f"{held.slots:,} slots (max_batch_size) serve {held.slots:,} sequences at once, and the others wait")
    return said
