"""The views of `kvcalc.fit/1`, `kvcalc.sizing/1` and `kvcalc.lengths/1`."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from kvcalc.core.units import clean, human, show_bytes, show_tokens
from kvcalc.render.estimate_view import engine_name
from kvcalc.render.view import Column, Facts, Table, View

if TYPE_CHECKING:
    from collections.abc import Mapping

_SHARES = (
    Column("part", "part"),
    Column("bytes", "bytes", "bytes"),
    Column("size", "size", "size", 1),
    Column("known", "how it is known", "prose", 2),
)
_CAPACITY = ("tokens", "concurrency", "blocks", "block_bytes", "block_size", "sliding_tokens", "state_slots")
_COUNTED = (("tokens", "tokens"), ("sliding_tokens", "sliding tokens"), ("state_slots", "state slots"))
#: Settings of a remedy whose option has another name.
_OPTIONS = {"context": "--ctx", "sequences": "--sequences", "tensor_parallel": "--tp", "pipeline_parallel": "--pp"}
#: What a device that is no card of the catalogue is called.
_NO_CARD = "memory"
_RANKED = (
    Column("gpu", "id"),
    Column("name", "name", "text", 2),
    Column("devices", "devices", "count"),
    Column("memory", "memory of each", "size", 1),
    Column("kv_bytes_per_device", "for the cache, each", "size", 3),
)
_ALLOCATIONS = (
    Column("name", "allocation"),
    Column("bytes", "bytes", "bytes"),
    Column("size", "size", "size", 2),
    Column("waste", "waste, B", "bytes", 3),
    Column("utilisation", "in use", "percent"),
    Column("p50", "fit, p50", "count", 1),
    Column("p95", "fit, p95", "count", 1),
    Column("p99", "fit, p99", "count", 1),
)


def view(document: Mapping[str, Any]) -> View:
    """What `kvcalc fit` shows: the answer, the memory and how it is known, the engine's figures, what would make it fit."""
    facts = [
        ("longest context", f"{_range(document, 'max_context', ' tokens')}, {_sequences(document)}"),
        ("most sequences", f"{_range(document, 'max_sequences')} of {show_tokens(document['workload']['context'])} tokens"),
    ]
    if document["needed"] is not None:
        facts.append(("needed", _needed(document)))
    if document.get("smallest_devices"):
        facts.append(("enough", f"{document['smallest_devices']} of these devices"))
    capacity = document["capacity"]
    said = _capacity(capacity)
    if said:
        facts.append((f"{document['engine']['name']} itself", said))
    bound = document.get("decode_bound")
    if bound:
        facts.append(("decoding", f"at most {bound['tokens_per_second']:,} tokens/s in all ({bound['text']})"))
    origin = document["budget"]["from"]
    if not isinstance(origin, str) and not document["budget"]["kv_bytes_per_device"]:
        facts.append(("nothing is left", "weights and overhead alone exceed the memory of one device"))
    blocks: list[Any] = [Facts(tuple(facts)), memory_table(document)]
    if document["remedies"]:
        blocks.append(Facts(tuple(_remedy(remedy, origin) for remedy in document["remedies"]), "It would fit with one of"))
    return View(_headline(document), tuple(blocks), tuple(document["notes"]), tuple(document["warnings"]), data=_data(document))


def _remedy(remedy: Mapping[str, Any], origin: str | Mapping[str, Any]) -> tuple[str, str]:
    """`--ctx 3312`, and what it means; more of a card are a number behind its name."""
    setting, value = remedy["setting"], remedy["value"]
    if setting in ("tensor_parallel", "pipeline_parallel") and not isinstance(origin, str) and origin["gpu"] != _NO_CARD:
        return f"--gpu {clean(origin['gpu'], 40)}:{value}", clean(remedy["text"], 400)
    return f"{_OPTIONS.get(setting, '--' + setting.replace('_', '-'))} {value}", clean(remedy["text"], 400)


def _capacity(capacity: Mapping[str, Any]) -> str:
    """`491,520 tokens, concurrency 3.75, 30,720 blocks of 16 tokens and 2,097,152 B`: what the engine has a notion of."""
    blocks, size, width = (capacity[key] for key in ("blocks", "block_size", "block_bytes"))
    block = " and ".join(
        text for text in (f"{size:,} token{'s' if size != 1 else ''}" if size else "", show_bytes(width) if width else "") if text
    )
    counted = f"{_figure(blocks)} blocks" if blocks is not None else "blocks" if block else ""
    parts = [f"{_figure(capacity[key])} {label}" for key, label in _COUNTED if capacity[key] is not None]
    if capacity["concurrency"] is not None:
        parts.insert(1 if capacity["tokens"] is not None else 0, f"concurrency {_figure(capacity['concurrency'])}")
    return ", ".join([*parts, " of ".join(text for text in (counted, block) if text)] if counted else parts)


def _headline(document: Mapping[str, Any]) -> str:
    verdict = "fits" if document["fits"] else "DOES NOT FIT"
    context = show_tokens(document["workload"]["context"])
    kv = show_bytes(document["budget"]["kv_bytes_per_device"])
    tail = f"{clean(document['model']['id'])}, {document['kv_dtype']}, {engine_name(document['engine'])}"
    return f"{verdict}: {_sequences(document)} of {context} tokens in {kv} per device: {tail}"


def _sequences(document: Mapping[str, Any]) -> str:
    count = document["workload"]["sequences"]
    return f"{count:,} sequence{'s' if count != 1 else ''}"


def _needed(document: Mapping[str, Any]) -> str:
    """`8,592,031,744 B (8 GiB) per device, 2 GiB more than there is; gpu_memory_utilization 0.95 is enough`."""
    needed, given = document["needed"], document["budget"]["kv_bytes_per_device"]
    text = f"{show_bytes(needed)} per device"
    if needed > given:
        text += f", {human(needed - given)} more than there is"
    share = document.get("needed_utilization")
    return text if share is None else f"{text}; {share['setting']} {share['value']:g} is enough"


def _range(document: Mapping[str, Any], key: str, unit: str = "") -> str:
    """`56`, or `56 (52 to 57)` where the memory is an estimate; without a figure, `none` fits or nothing ends it."""
    value = document[key]
    if value is None and document["fits"]:
        return "no limit"
    text = "none" if value is None else f"{value:,}{unit}"
    low, high = document.get(f"{key}_range", (value, value))
    return text if low == high else f"{text} ({_count(low)} to {_count(high)})"


def _count(value: int | None) -> str:
    return "none" if value is None else f"{value:,}"


def _figure(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4f}".rstrip("0").rstrip(".")


def memory_table(document: Mapping[str, Any]) -> Table:
    """How the memory of one device is divided, and how each part is known."""
    budget = document["budget"]
    origin, kv = budget["from"], budget["kv_bytes_per_device"]
    if isinstance(origin, str):
        return Table(_SHARES, (("for the cache", kv, kv, f"given: {origin}"),), "Memory of one device")
    sure = origin["sure"]
    rows = (
        ("memory", origin["memory"], origin["memory"], sure["memory"]),
        ("utilization", None, None, f"{origin['utilization']:g}, {sure['utilization']}"),
        ("weights", origin["weights"], origin["weights"], sure["weights"]),
        ("overhead", origin["overhead"], origin["overhead"], sure["overhead"]),
        ("for the cache", kv, kv, f"likely; {show_bytes(origin['kv_low'])} to {show_bytes(origin['kv_high'])}"),
    )
    return Table(_SHARES, rows, f"Memory of one {clean(origin['gpu'])}")


def _data(document: Mapping[str, Any]) -> Table:
    """For CSV: one row with the answer."""
    keys = ("fits", "max_context", "max_sequences")
    columns = (*(Column(key, key) for key in keys), Column("kv_bytes_per_device", "kv_bytes_per_device", "count"))
    columns += tuple(Column(key, key) for key in _CAPACITY)
    values = (
        *(document[key] for key in keys),
        document["budget"]["kv_bytes_per_device"],
        *(document["capacity"][key] for key in _CAPACITY),
    )
    return Table(columns, (tuple(None if value is None else value for value in values),))


def rank_view(document: Mapping[str, Any]) -> View:
    """What `kvcalc fit --gpus all` shows."""
    rows = tuple(tuple(row[column.key] for column in _RANKED) for row in document["gpus"])
    workload = document["workload"]
    asked = f"{workload['sequences']:,} x {show_tokens(workload['context'])} tokens: {clean(document['model']['id'])}, {document['engine']['name']}"
    best = document["gpus"][0] if rows else None
    headline = f"{best['devices']} x {best['gpu']} is the least memory that holds {asked}" if best else f"no accelerator holds {asked}"
    return View(headline, (Table(_RANKED, rows),), tuple(document["notes"]), tuple(document["warnings"]))


def lengths_view(document: Mapping[str, Any]) -> View:
    """What `kvcalc fit --lengths` shows."""
    rows = tuple(_allocation(row) for row in document["allocations"])
    percentiles = ", ".join(f"{name} {tokens:,}" for name, tokens in document["percentiles"].items())
    facts = [
        ("lengths", f"{document['requests']:,} requests, {document['tokens']:,} tokens, longest {document['longest']:,}; {percentiles}")
    ]
    if document["budget"] is not None:
        facts.append(("memory", show_bytes(document["budget"])))
        alike = ", ".join(f"{count:,} of {name}'s length" for name, count in document["fits_at"].items() if count is not None)
        facts.append(("all of one length", f"{alike} fit"))
    ideal, contiguous = document["allocations"][-1], document["allocations"][0]
    headline = f"{show_bytes(ideal['bytes'])} in use, {show_bytes(contiguous['bytes'])} if each reserves the longest: {clean(document['model']['id'])}"
    notes = ("fit, p95: the most requests of this traffic whose sum stays in the memory with 95 % probability (normal approximation)",)
    return View(headline, (Facts(tuple(facts)), Table(_ALLOCATIONS, rows)), notes)


def _allocation(row: Mapping[str, Any]) -> tuple[Any, ...]:
    fits = row["fits_mixed"] or {}
    used = Fraction(row["bytes"] - row["waste"], row["bytes"]) if row["bytes"] else Fraction(1)
    return (row["name"], row["bytes"], row["bytes"], row["waste"], used, fits.get("p50"), fits.get("p95"), fits.get("p99"))
