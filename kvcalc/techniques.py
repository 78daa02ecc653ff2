"""What-ifs: each technique turns one architecture into another, so that their caches can be compared.

    gqa+swa:window=1024:ratio=5-1      techniques from left to right, parameters behind a colon
    parse("gqa+swa") → (Step(gqa), Step(swa)) ── apply(case, steps) ──▶ Case: architecture, workload, page size

A technique is a function of a `Case` and its parameters. Its docstring is its page in `kvcalc explain`. Every storage format
is a technique too: `fp8`, `q4_0`, `q8_0/q4_0`. Errors: `UsageError`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from kvcalc.architecture import Architecture, Layout
from kvcalc.errors import UsageError, nearest
from kvcalc.formats import ALIASES, FORMATS, get_kv_format
from kvcalc.states import KINDS, State
from kvcalc.units import clean, parse_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kvcalc.workload import Workload

#: Attention that keeps K and V of each head, and attention that keeps one latent.
HEADED = frozenset({"full", "sliding", "chunked"})
ATTENTION = HEADED | {"latent"}
#: Longer chains than this are no question.
_MOST_STEPS = 8


@dataclass(frozen=True, slots=True)
class Case:
    """What a technique changes.

    block     page size in tokens; 0 = rows are allocated one by one
    applied   names of the techniques so far
    remarks   what the reader should know about the result
    """

    architecture: Architecture
    workload: Workload
    block: int = 0
    applied: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


class Ratio(NamedTuple):
    """`5-1`: five layers of one kind, then one of the other."""

    changed: int
    kept: int

    def __str__(self) -> str:
        return f"{self.changed}-{self.kept}"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: `default` is a value, or a function that finds it in the case."""

    name: str
    default: int | Ratio | Callable[[Case], int]
    about: str

    def read(self, text: str) -> int | Ratio:
        """The value behind `text`. Raises UsageError."""
        if isinstance(self.default, Ratio):
            changed, dash, kept = text.partition("-")
            digits = changed + kept
            if not (dash and changed and kept and digits.isascii() and digits.isdigit() and len(text) < 10 and int(changed) + int(kept)):
                raise UsageError(f"{self.name}: '{clean(text, 40)}' is not a ratio", "write it like 5-1")
            return Ratio(int(changed), int(kept))
        return parse_tokens(text, self.name, least=0 if self.name == "rope_dim" else 1)


@dataclass(frozen=True, slots=True)
class Technique:
    """A name, its parameters, and the function that applies it.

    base   the technique that it stands on where the chain has not said what attention keeps
    """

    name: str
    parameters: tuple[Parameter, ...]
    change: Callable[..., Case]
    base: str = ""

    @property
    def about(self) -> str:
        """The first line of its page."""
        return (self.change.__doc__ or "").strip().partition("\n")[0]


@dataclass(frozen=True, slots=True)
class Step:
    """A technique with the parameters that were given for it; the others take their defaults."""

    technique: Technique
    given: Mapping[str, int | Ratio] = field(default_factory=dict)


TECHNIQUES: dict[str, Technique] = {}


def _technique(*parameters: Parameter, base: str = "") -> Callable[[Callable[..., Case]], Callable[..., Case]]:
    def register(function: Callable[..., Case]) -> Callable[..., Case]:
        TECHNIQUES[function.__name__] = Technique(function.__name__, parameters, function, base)
        return function

    return register


# ── layers ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def build(kind: str, fields: Mapping[str, Any]) -> State:
    """A state of `kind` from those of `fields` that it has. Raises UsageError for values that it refuses."""
    from pydantic import ValidationError

    found = KINDS[kind]
    try:
        return found.model_validate({key: value for key, value in fields.items() if key in found.model_fields and key != "kind"})
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in problem["loc"])
        reason = problem["msg"].removeprefix("Value error, ")
        raise UsageError(f"{where}: {reason[:1].lower()}{reason[1:]}" if where else reason, "choose values that divide") from None


def with_layers(architecture: Architecture, layers: list[tuple[State, ...]]) -> Architecture:
    """`architecture` with other layers; each combination of states gets a name of its own."""
    names: dict[tuple[State, ...], str] = {}
    for entry in layers:
        if entry not in names:
            stem = "_".join(dict.fromkeys(state.kind for state in entry)) or "none"
            names[entry] = stem if stem not in names.values() else f"{stem}_{len(names)}"
    layout = Layout(
        pattern=tuple(names[entry] for entry in layers), count=len(layers), states={name: entry for entry, name in names.items()}
    )
    return architecture.model_copy(update={"layers": layout, "expect": ()})


def _layers(case: Case) -> list[tuple[State, ...]]:
    layout = case.architecture.layers
    return [layout.states[name] for name in layout.order]


def has_attention(entry: tuple[State, ...]) -> bool:
    """One of the layer's states is attention over the sequence's own tokens."""
    return any(state.kind in ATTENTION for state in entry)


def _attention_states(case: Case) -> list[State]:
    found = [state for state in case.architecture.states if state.kind in ATTENTION]
    if not found:
        raise UsageError(f"{clean(case.architecture.id)} has no attention layers to change", "this technique changes attention")
    if any(state.kind == "compressed" for state in case.architecture.states):
        raise UsageError(f"{clean(case.architecture.id)} compresses its cache over tokens, and has no such form", "choose another model")
    return found


def _replaced(case: Case, change: Callable[[State], State | None]) -> Case:
    """Each attention state, and what is bound to it, through `change`; None drops it."""
    _attention_states(case)
    changed: dict[State, State | None] = {state: change(state) for state in case.architecture.states}
    layers = [tuple(new for state in entry if (new := changed[state]) is not None) for entry in _layers(case)]
    return replace(case, architecture=with_layers(case.architecture, layers))


def _every(case: Case, ratio: Ratio, change: Callable[[State], State], keep: Callable[[State], State]) -> Case:
    """Of every `a + b` attention layers the first a through `change`, the others through `keep`."""
    _attention_states(case)
    place = 0
    layers: list[tuple[State, ...]] = []
    for entry in _layers(case):
        if has_attention(entry):
            turn = change if place % sum(ratio) < ratio.changed else keep
            entry = tuple(turn(state) if state.kind in ATTENTION else state for state in entry)  # noqa: PLW2901
            place += 1
        layers.append(entry)
    return replace(case, architecture=with_layers(case.architecture, layers))


def _heads(state: State) -> dict[str, Any]:
    """A state's fields with its heads written out: those of a latent are the heads that it decompresses into."""
    fields = state.model_dump()
    if state.kind != "latent":
        return {**fields, "value_head_dim": fields["value_head_dim"] or fields["head_dim"]}
    if not (fields["query_heads"] and fields["nope_dim"]):
        raise UsageError("the latent's heads are not known", "set query_heads, nope_dim and value_head_dim")
    nope, value = fields["nope_dim"], fields["value_head_dim"]
    return {**fields, "head_dim": nope + fields["rope_dim"], "value_head_dim": value or nope}


def _query_heads(case: Case) -> int:
    found = {getattr(state, "query_heads", None) for state in _attention_states(case)}
    if len(found) != 1 or None in found:
        raise UsageError(
            f"{clean(case.architecture.id)} has no single number of query heads", "give the parameters, such as gqa:kv_heads=8"
        )
    return int(found.pop() or 0)


def _regrouped(case: Case, kv_heads: int | None) -> Case:
    """Every attention layer with `kv_heads` K/V heads; None = as many as query heads."""

    def change(state: State) -> State | None:
        if state.kind == "index" and has_latents:
            return None  # index keys choose among latents, and there are none any more
        if state.kind not in ATTENTION:
            return state
        fields = _heads(state)
        wanted = kv_heads or fields["query_heads"]
        if wanted is None:
            raise UsageError(f"{clean(case.architecture.id)} does not say its query heads", "give --set query_heads=…")
        kind = state.kind if state.kind in HEADED else "sliding" if fields["window"] else "full"
        return build(kind, {**fields, "kv_heads": wanted})

    has_latents = any(state.kind == "latent" for state in case.architecture.states)
    return _replaced(case, change)


# ── the techniques ──────────────────────────────────────────────────────────────────────────────────────────────────────


@_technique()
def mha(case: Case) -> Case:
    """Multi-head attention (arXiv:1706.03762): every query head has its own K and V.

        kv_heads = query_heads
        bytes = 2 x layers x query_heads x head_dim x T x bytes an element

    The baseline of the introductions: 2 x 32 x 32 x 128 x 32,768 x 2 B = 17,179,869,184 B.
    """
    return _regrouped(case, None)


@_technique(Parameter("kv_heads", lambda case: max(1, _query_heads(case) // 4), "K/V heads; must divide the query heads"))
def gqa(case: Case, kv_heads: int) -> Case:
    """Grouped-query attention (arXiv:2305.13245): each K/V head serves query_heads / kv_heads query heads.

        bytes = MHA x kv_heads / query_heads

    8 of 32 heads: 17,179,869,184 B / 4 = 4,294,967,296 B.
    """
    return _regrouped(case, kv_heads)


@_technique()
def mqa(case: Case) -> Case:
    """Multi-query attention (arXiv:1911.02150): one K/V head for all query heads.

        bytes = MHA / query_heads

    32 heads: 17,179,869,184 B / 32 = 536,870,912 B.
    """
    return _regrouped(case, 1)


@_technique(
    Parameter("latent_dim", 512, "elements of the latent"),
    Parameter("rope_dim", 64, "elements of the rotary key that all heads share"),
)
def mla(case: Case, latent_dim: int, rope_dim: int) -> Case:
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): one latent and one rotary key for all heads.

        bytes = layers x (latent_dim + rope_dim) x T x bytes an element        no factor 2, no heads

    32 x (512 + 64) x 32,768 x 2 B = 1,207,959,552 B.
    """

    def change(state: State) -> State:
        if state.kind not in ATTENTION:
            return state
        if state.kind == "chunked":
            raise UsageError("mla: kvcalc knows no latent attention over chunks", "apply mla before chunked, or leave one out")
        fields = state.model_dump()
        heads = {} if state.kind == "latent" else {"nope_dim": fields["head_dim"], "value_head_dim": _heads(state)["value_head_dim"]}
        return build("latent", {**fields, **heads, "latent_dim": latent_dim, "rope_dim": rope_dim})

    return _replaced(case, change)


@_technique(
    Parameter("window", 1024, "tokens that a sliding layer keeps"),
    Parameter("ratio", Ratio(5, 1), "sliding to full layers, in turn"),
)
def swa(case: Case, window: int, ratio: Ratio) -> Case:
    """Sliding-window attention (Mistral 7B, arXiv:2310.06825; Gemma 3): most layers keep the last `window` tokens only.

        bytes = 2 x kv_heads x head_dim x (sliding layers x min(T, window) + full layers x T) x bytes an element

    GQA with 8 heads, 27 sliding and 5 full layers, 32,768 tokens: 4,096 B x (27 x 1,024 + 5 x 32,768) = 784,334,848 B.
    Dropped tokens are out of sight too: a sliding layer cannot look back further than its window.
    """
    return _every(case, ratio, lambda state: _windowed(state, window), lambda state: _windowed(state, None))


def _windowed(state: State, window: int | None) -> State:
    fields = {**state.model_dump(), "window": window}
    return build("latent" if state.kind == "latent" else "sliding" if window else "full", fields)


@_technique(
    Parameter("chunk", 8192, "tokens of a chunk"),
    Parameter("ratio", Ratio(3, 1), "chunked to full layers, in turn"),
)
def chunked(case: Case, chunk: int, ratio: Ratio) -> Case:
    """Chunked attention (Llama 4): most layers see the current chunk only.

        bytes = 2 x kv_heads x head_dim x (chunked layers x min(T, chunk) + full layers x T) x bytes an element

    MHA, 24 chunked and 8 full layers, 32,768 tokens: 16,384 B x (24 x 8,192 + 8 x 32,768) = 7,516,192,768 B.
    """

    def change(state: State) -> State:
        if state.kind == "latent":
            raise UsageError("chunked: kvcalc knows no latent attention over chunks", "leave out mla")
        return build("chunked", {**state.model_dump(), "chunk": chunk})

    return _every(case, ratio, change, lambda state: state if state.kind == "latent" else build("full", state.model_dump()))


@_technique(Parameter("producer_layers", lambda case: -(-len(_sharable(case.architecture)) // 2), "attention layers that keep a cache"))
def share(case: Case, producer_layers: int) -> Case:
    """Cross-layer sharing (CLA, arXiv:2405.12981; Gemma 3n and 4): the last layers read an earlier layer's cache.

        bytes = as before, over producer layers only

    16 of 32 MHA layers: 17,179,869,184 B / 2 = 8,589,934,592 B. A consumer reads the nearest earlier producer of its own kind.
    """
    return replace(case, architecture=share_layers(case.architecture, producer_layers))


def _sharable(architecture: Architecture) -> list[int]:
    """Layers with attention, or with another layer's."""
    order = [architecture.layers.states[name] for name in architecture.layers.order]
    return [index for index, entry in enumerate(order) if has_attention(entry) or any(state.kind == "shared" for state in entry)]


def _read_by(layers: list[tuple[State, ...]], place: int) -> int:
    """The layer whose cache the layer at `place` reads: its producer's, else its own."""
    producer = next((getattr(state, "shares_with", None) for state in layers[place] if state.kind == "shared"), None)
    return place if producer is None or producer >= len(layers) else producer


def share_layers(architecture: Architecture, producer_layers: int) -> Architecture:
    """Only the first `producer_layers` attention layers keep a cache. Raises UsageError if that cannot be."""
    layers = [architecture.layers.states[name] for name in architecture.layers.order]
    places = _sharable(architecture)
    keeping = sum(has_attention(layers[place]) for place in places)
    if producer_layers > keeping:
        raise UsageError(f"producer_layers: {producer_layers} is more than the {keeping} attention layers that keep a cache")
    newest: dict[tuple[str, ...], int] = {}
    kinds = {place: tuple(state.kind for state in layers[_read_by(layers, place)]) for place in places}
    kept = 0
    for place in places:
        if has_attention(layers[place]) and kept < producer_layers:
            newest[kinds[place]] = place
            kept += 1
            continue
        if kinds[place] not in newest:
            raise UsageError(
                f"producer_layers: none of the first {producer_layers} attention layers is like layer {place} ({', '.join(kinds[place])})",
                "a layer shares with an earlier one of its own kind: keep more producers",
            )
        others = tuple(state for state in layers[place] if state.kind not in ATTENTION | {"index", "shared"})
        layers[place] = (build("shared", {"shares_with": newest[kinds[place]]}), *others)
    return with_layers(architecture, layers)


@_technique(
    Parameter("index_dim", 128, "elements of an index key"),
    Parameter("top_k", 2048, "positions that attention reads"),
    base="mla",
)
def dsa(case: Case, index_dim: int, top_k: int) -> Case:
    """DeepSeek sparse attention (DeepSeek-V3.2, arXiv:2512.02556): attention reads only the top_k positions, all stay stored.

        bytes = MLA + layers x T x row(index_dim)        fp8 with one fp32 scale per 128: 132 B
        positions attended per step: min(T, top_k)

    32 layers at 32,768 tokens: 1,207,959,552 B + 32 x 32,768 x 132 B = 1,346,371,584 B: more memory, fewer positions.
    Attention with heads becomes MLA first, unless mha, gqa or mqa was asked for before: then index keys stand beside K and V.
    """
    _attention_states(case)
    key = build("index", {"index_dim": index_dim, "top_k": top_k})
    layers = [(*(state for state in entry if state.kind != "index"), key) if has_attention(entry) else entry for entry in _layers(case)]
    return replace(case, architecture=with_layers(case.architecture, layers))


def _first_heads(case: Case) -> dict[str, Any]:
    return _heads(_attention_states(case)[0])


@_technique(
    Parameter("ratio", Ratio(3, 1), "recurrent to attention layers, in turn"),
    Parameter("key_heads", _query_heads, "heads of Q and K"),
    Parameter("value_heads", _query_heads, "heads of V, each with a matrix"),
    Parameter("key_head_dim", lambda case: int(_first_heads(case)["head_dim"]), "rows of a head's matrix"),
    Parameter("value_head_dim", lambda case: int(_first_heads(case)["value_head_dim"]), "columns of a head's matrix"),
    Parameter("conv_kernel", 4, "kernel of the short convolution"),
)
def deltanet(case: Case, ratio: Ratio, **fields: int) -> Case:
    """Gated DeltaNet (arXiv:2412.06464; Qwen3-Next): most layers keep one matrix a head, whatever the context.

        fixed = layers x (value_heads x key_head_dim x value_head_dim x 4 B + convolution columns)        independent of T

    24 of 32 layers with 32 heads of 128 x 128: 24 x (2,097,152 B + 12,288 x 3 x 2 B) = 52,101,120 B, and 8 layers as before.
    """
    return _every(case, ratio, lambda _: build("gated_deltanet", fields), lambda state: state)


def _hidden(case: Case) -> int:
    known = case.architecture.hidden_dim
    return known or _query_heads(case) * int(_first_heads(case)["head_dim"])


@_technique(
    Parameter("ratio", Ratio(3, 1), "recurrent to attention layers, in turn"),
    Parameter("heads", lambda case: 2 * _hidden(case) // 64, "heads of the inner width, which is twice the hidden width"),
    Parameter("head_dim", 64, "rows of a head's matrix"),
    Parameter("state_dim", 128, "columns of a head's matrix"),
    Parameter("groups", 1, "groups of B and C"),
    Parameter("conv_kernel", 4, "kernel of the short convolution"),
)
def mamba2(case: Case, ratio: Ratio, **fields: int) -> Case:
    """Mamba-2 (arXiv:2405.21060): most layers keep one head_dim x state_dim matrix a head, whatever the context.

        fixed = layers x (heads x head_dim x state_dim x 4 B + convolution columns)        independent of T

    24 of 32 layers with 128 heads of 64 x 128: 24 x (4,194,304 B + 8,448 x 3 x 2 B) = 101,879,808 B, and 8 layers as before.
    """
    return _every(case, ratio, lambda _: build("mamba2", fields), lambda state: state)


@_technique(Parameter("block", 16, "tokens of a block"))
def paged(case: Case, block: int) -> Case:
    """PagedAttention (vLLM, arXiv:2309.06180): blocks on demand instead of one contiguous maximum for each sequence.

        slots = ceil(T / block) x block        plus a block table of 4 B an entry
        waste < block tokens per sequence, none between sequences

    1,000 tokens in blocks of 16: 63 blocks, 1,008 slots. Shared prefixes count in whole blocks.
    """
    context = case.workload.context or 0
    slots = -(-context // block) * block
    said = [f"paged: {slots - context:,} of {slots:,} slots stay empty, in the last block"] if slots > context else []
    longest = case.architecture.max_context
    if longest is not None and longest > slots:
        said.append(f"paged: a contiguous cache would reserve the model's maximum of {longest:,} tokens, whatever the sequence's length")
    return replace(case, block=block, remarks=(*case.remarks, *said))


@_technique(Parameter("tokens", lambda case: case.workload.shared_prefix or (case.workload.context or 0) // 2, "leading tokens in common"))
def prefix(case: Case, tokens: int) -> Case:
    """Prefix caching: what all sequences begin with is stored once.

        rows = prefix + sequences x (T - prefix)        one changed token ends the match

    100 sequences of 4,096 tokens that share 1,024: 1,024 + 100 x 3,072 = 308,224 rows instead of 409,600.
    """
    remarks = case.remarks
    if case.workload.sequences == 1:
        remarks = (*remarks, "prefix: one sequence has nobody to share with; give --sequences")
    return replace(case, workload=replace(case.workload, shared_prefix=tokens), remarks=remarks)


def _stored_as(name: str) -> Technique:
    """The technique that stores K and V in the format `name`."""

    def change(case: Case) -> Case:
        return replace(case, workload=replace(case.workload, kv_dtype=name))

    formats = get_kv_format(name)
    change.__doc__ = f"Cache quantisation: K and V stored as {formats.name}.\n\n    {formats.key.formula}\n"
    return Technique(name, (), change)


# ── reading and applying ────────────────────────────────────────────────────────────────────────────────────────────────


def names() -> tuple[str, ...]:
    """Every technique and every storage format."""
    return (*TECHNIQUES, *FORMATS)


def get_technique(name: str) -> Technique:
    """The technique of that name, formats included. Raises UsageError naming the nearest ones."""
    key = name.strip().lower()
    if key in TECHNIQUES:
        return TECHNIQUES[key]
    if all(part in FORMATS or part in ALIASES for part in key.split("/", 1)):
        return _stored_as(key)
    raise UsageError(f"unknown technique '{clean(name, 40)}'", nearest(key, names()) or "techniques: " + ", ".join(TECHNIQUES))


def parse(text: str) -> tuple[Step, ...]:
    """`gqa+swa:window=1024:ratio=5-1` → its steps. Raises UsageError."""
    parts = [part for part in text.split("+") if part.strip()]
    if not parts or len(parts) > _MOST_STEPS:
        raise UsageError(f"'{clean(text, 60)}' is not a technique", "join techniques with +, such as gqa+swa")
    steps: list[Step] = []
    for part in parts:
        name, *settings = part.split(":")
        technique = get_technique(name)
        if any(
            step.technique.name == technique.name or not (step.technique.name in TECHNIQUES or technique.name in TECHNIQUES)
            for step in steps
        ):
            raise UsageError(f"'{clean(text, 60)}' has two of one kind: {technique.name}", "each technique once, and one format")
        known = {parameter.name: parameter for parameter in technique.parameters}
        given: dict[str, int | Ratio] = {}
        for setting in settings:
            key, equals, value = setting.partition("=")
            key = key.strip().replace("-", "_")
            if not equals or key not in known:
                hint = nearest(key, known) or ("parameters: " + ", ".join(known) if known else f"{technique.name} has no parameters")
                raise UsageError(f"{technique.name} has no parameter '{clean(key, 40)}'", hint)
            given[key] = known[key].read(value)
        steps.append(Step(technique, given))
    return tuple(steps)


def apply(case: Case, steps: tuple[Step, ...], settings: Mapping[str, str] | None = None) -> tuple[Case, list[Used]]:
    """`case` after all steps, and each step's parameters in force: given, else among `settings`, else the default.

    Raises UsageError naming the technique.
    """
    used: list[Used] = []
    for step in steps:
        if _wants_base(case, step.technique):
            case, below = apply(case, (Step(TECHNIQUES[step.technique.base]),), settings)
            used.extend(below)
        try:
            wanted = _in_force(case, step, settings or {})
            case = step.technique.change(case, **wanted)
        except UsageError as error:
            name = step.technique.name
            sentence = error.message if error.message.startswith(f"{name}:") else f"{name}: {error.message}"
            raise UsageError(sentence, error.hint) from None
        case = replace(case, applied=(*case.applied, step.technique.name))
        used.append(Used(step.technique.name, wanted))
    return case, used


class Used(NamedTuple):
    """A technique as it was applied."""

    name: str
    parameters: dict[str, Any]

    def __str__(self) -> str:
        return " ".join([self.name, *(f"{key}={value}" for key, value in self.parameters.items())])


def _wants_base(case: Case, technique: Technique) -> bool:
    said = {"mha", "gqa", "mqa", "mla"} & set(case.applied)
    return bool(technique.base) and not said and any(state.kind in HEADED for state in case.architecture.states)


def _in_force(case: Case, step: Step, settings: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for item in step.technique.parameters:
        if item.name in step.given:
            found[item.name] = step.given[item.name]
        elif item.name in settings:
            found[item.name] = item.read(settings[item.name])
        else:
            found[item.name] = item.default(case) if callable(item.default) else item.default
    return found
