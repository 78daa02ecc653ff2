"""The view of `kvcalc.fit/1`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.core.units import clean, human, show_bytes, show_tokens
from kvcalc.questions.documents.fit import CardFitDocument
from kvcalc.render.estimate_view import engine_name
from kvcalc.render.memory_view import devices_table
from kvcalc.render.view import Column, Facts, Table, View, cells_of

if TYPE_CHECKING:
    from kvcalc.questions.documents.fit import Capacity, CardBudget, CardShares, CountRemedy, FitDocument, GivenBudget, WordRemedy

_SHARES = (
    Column("part", "part"),
    Column("bytes", "bytes", "bytes"),
    Column("size", "size", "size", 1),
    Column("known", "how it is known", "prose", 2),
)
_CAPACITY = ("tokens", "concurrency", "blocks", "block_bytes", "block_size", "sliding_tokens", "state_slots")
#: Settings of a remedy whose option has another name.
_OPTIONS = {"context": "--ctx", "sequences": "--sequences", "tensor_parallel": "--tp", "pipeline_parallel": "--pp"}
#: What a device that is no card of the catalogue is called.
_NO_CARD = "memory"


def view(document: FitDocument) -> View:
    """What `kvcalc fit` shows: the answer, the memory and how it is known, the engine's figures, what would make it fit."""
    facts = [
        ("longest context", f"{_longest(document)}, {_sequences(document)}"),
        ("most sequences", f"{_most(document)} of {show_tokens(document.workload.context)} tokens"),
    ]
    if document.needed is not None:
        facts.append(("needed", _needed(document, document.needed)))
    card = document if isinstance(document, CardFitDocument) else None
    if card and card.smallest_devices:
        facts.append(("enough", f"{card.smallest_devices} of these devices"))
    capacity = document.capacity
    said = _capacity(capacity)
    if said:
        facts.append((f"{document.engine.name} itself", said))
    bound = card.decode_bound if card else None
    if bound:
        facts.append(("decoding", f"at most {bound.tokens_per_second:,} tokens/s in all ({bound.text})"))
    origin = document.budget.from_
    if not isinstance(origin, str) and not document.budget.kv_bytes_per_device:
        facts.append(("nothing is left", "weights and overhead alone exceed the memory of one device"))
    blocks: list[Table | Facts] = [Facts(tuple(facts)), memory_table(document.budget), devices_table(document.memory)]
    if document.remedies:
        blocks.append(Facts(tuple(_remedy(remedy, origin) for remedy in document.remedies), "It would fit with one of"))
    return View(_headline(document), tuple(blocks), document.notes, document.warnings, data=_data(document))


def _remedy(remedy: CountRemedy | WordRemedy, origin: str | CardShares) -> tuple[str, str]:
    """`--ctx 3312`, and what it means; more of a card are a number behind its name."""
    setting, value = remedy.setting, remedy.value
    if setting in ("tensor_parallel", "pipeline_parallel") and not isinstance(origin, str) and origin.gpu != _NO_CARD:
        return f"--gpu {clean(origin.gpu, 40)}:{value}", clean(remedy.text, 400)
    return f"{_OPTIONS.get(setting, '--' + setting.replace('_', '-'))} {value}", clean(remedy.text, 400)


def _capacity(capacity: Capacity) -> str:
    """`491,520 tokens, concurrency 3.75, 30,720 blocks of 16 tokens and 2,097,152 B`: what the engine has a notion of."""
    blocks, size, width = (capacity.blocks, capacity.block_size, capacity.block_bytes)
    block = " and ".join(
        text for text in (f"{size:,} token{'s' if size != 1 else ''}" if size else "", show_bytes(width) if width else "") if text
    )
    counted = f"{_figure(blocks)} blocks" if blocks is not None else "blocks" if block else ""
    known = ((capacity.tokens, "tokens"), (capacity.sliding_tokens, "sliding tokens"), (capacity.state_slots, "state slots"))
    parts = [f"{_figure(count)} {label}" for count, label in known if count is not None]
    if capacity.concurrency is not None:
        parts.insert(1 if capacity.tokens is not None else 0, f"concurrency {_figure(capacity.concurrency)}")
    return ", ".join([*parts, " of ".join(text for text in (counted, block) if text)] if counted else parts)


def _headline(document: FitDocument) -> str:
    verdict = "fits" if document.fits else "DOES NOT FIT"
    context = show_tokens(document.workload.context)
    kv = show_bytes(document.budget.kv_bytes_per_device)
    tail = f"{clean(document.model.id)}, {document.kv_dtype}, {engine_name(document.engine)}"
    return f"{verdict}: {_sequences(document)} of {context} tokens in {kv} per device: {tail}"


def _sequences(document: FitDocument) -> str:
    count = document.workload.sequences
    return f"{count:,} sequence{'s' if count != 1 else ''}"


def _needed(document: FitDocument, needed: int) -> str:
    """`8,592,031,744 B (8 GiB) per device, 2 GiB more than there is; gpu_memory_utilization 0.95 is enough`."""
    given = document.budget.kv_bytes_per_device
    text = f"{show_bytes(needed)} per device"
    if needed > given:
        text += f", {human(needed - given)} more than there is"
    share = document.needed_utilization if isinstance(document, CardFitDocument) else None
    return text if share is None else f"{text}; {share.setting} {share.value:g} is enough"


def _longest(document: FitDocument) -> str:
    """`81,904 tokens`, `none`, `no limit`."""
    if document.unbounded:
        return "no limit"
    return _range(document.max_context, " tokens", document.max_context_range if isinstance(document, CardFitDocument) else None)


def _most(document: FitDocument) -> str:
    """`56`, `none`, `no limit`."""
    if document.max_sequences is None and document.fits:
        return "no limit"
    return _range(document.max_sequences, "", document.max_sequences_range if isinstance(document, CardFitDocument) else None)


def _range(value: int | None, unit: str, ends: tuple[int | None, int | None] | None) -> str:
    """`56`, or `56 (52 to 57)` where the memory is an estimate."""
    text = "none" if value is None else f"{value:,}{unit}"
    low, high = ends or (value, value)
    return text if low == high else f"{text} ({_count(low)} to {_count(high)})"


def _count(value: int | None) -> str:
    return "none" if value is None else f"{value:,}"


def _figure(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4f}".rstrip("0").rstrip(".")


def memory_table(budget: GivenBudget | CardBudget) -> Table:
    """How the memory of one device is divided, and how each part is known."""
    origin, kv = budget.from_, budget.kv_bytes_per_device
    if isinstance(origin, str):
        return Table(_SHARES, (("for the cache", kv, kv, f"given: {origin}"),), "Memory of one device")
    sure = origin.sure
    rows = (
        ("memory", origin.memory, origin.memory, sure.memory),
        ("utilization", None, None, f"{origin.utilization:g}, {sure.utilization}"),
        ("weights", origin.weights, origin.weights, sure.weights),
        ("overhead", origin.overhead, origin.overhead, sure.overhead),
        ("for the cache", kv, kv, f"likely; {show_bytes(origin.kv_low)} to {show_bytes(origin.kv_high)}"),
    )
    return Table(_SHARES, rows, f"Memory of one {clean(origin.gpu)}")


def _data(document: FitDocument) -> Table:
    """For CSV: one row with the answer, and where the memory of the first device lies."""
    answer = tuple(Column(key, key) for key in ("fits", "max_context", "max_sequences"))
    capacity = tuple(Column(key, key) for key in _CAPACITY)
    parts = tuple(Column(key, key) for key in ("weights", "cache", "overhead", "total", "limit"))
    columns = (
        *answer,
        Column("kv_bytes_per_device", "kv_bytes_per_device", "count"),
        *capacity,
        Column("unbounded", "unbounded"),
        *(Column(f"device_{column.key}", column.title) for column in parts),
    )
    device = document.memory.devices[0] if document.memory.devices else None
    row = (
        *cells_of(document, answer),
        document.budget.kv_bytes_per_device,
        *cells_of(document.capacity, capacity),
        document.unbounded,
        *(cells_of(device, parts) if device else (None,) * len(parts)),
    )
    return Table(columns, (row,))
