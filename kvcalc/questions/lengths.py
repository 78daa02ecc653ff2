"""Requests of different lengths: what contiguous, paged and ideal allocation make of the same traffic.

    contiguous   every request reserves the longest one's slots         waste inside a reservation
    paged, B     ceil(slots / B) x B slots of each buffer               waste under one block a buffer (arXiv:2309.06180)
    ideal        the slots in use                                       no waste

Lengths come from a list, a file (one number a line, CSV, JSON Lines), or a log-normal distribution of given mean and p99.
How many requests fit is exact where all have one length, and an estimate (normal approximation of their sum) for the mix.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from kvcalc.core.errors import InvalidConfigError, UsageError, nearest
from kvcalc.core.formats import get_kv_format
from kvcalc.core.units import LARGEST, MIB, clean, parse_tokens
from kvcalc.engines.base.engine import default_format
from kvcalc.engines.ideal.engine import row_bytes
from kvcalc.questions.documents.fit import Allocation as AllocationFigures
from kvcalc.questions.documents.fit import LengthsDocument
from kvcalc.questions.documents.kinds import Answer
from kvcalc.questions.documents.parts import model_of
from kvcalc.sources.files import decode, exists, read_bytes, user_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kvcalc.core.architecture import Architecture
    from kvcalc.core.states import Extent

#: A trace of a million requests is under 64 MiB in any of the forms.
LARGEST_TRACE = 64 * MIB
MOST_REQUESTS = 2_000_000
#: More different lengths than a trace has: each is planned under every way of allocating.
MOST_LENGTHS = 100_000
#: Quantiles that a distribution is drawn at: its midpoints, so that the same text always gives the same traffic.
DRAWN = 10_000
BLOCK_SIZES = (16, 32, 64, 128, 256)
PERCENTILES = (50, 95, 99)

_TOTAL_NAMES = ("tokens", "total_tokens", "length", "total", "context")
_PROMPT_NAMES = ("prompt_tokens", "input_tokens", "prompt", "input", "num_prompt_tokens", "contexttokens")
_OUTPUT_NAMES = ("completion_tokens", "output_tokens", "generated_tokens", "completion", "output", "generatedtokens")


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens per request: how often each length occurs, and where it was read."""

    counts: dict[int, int]
    origin: str

    @property
    def requests(self) -> int:
        """How many requests there are."""
        return sum(self.counts.values())

    @property
    def longest(self) -> int:
        """The longest of them."""
        return max(self.counts)

    def percentile(self, percent: int) -> int:
        """The nearest-rank percentile: the smallest length that at least `percent` of the requests do not exceed."""
        rank = -(-self.requests * percent // 100)
        seen = 0
        for tokens in sorted(self.counts):
            seen += self.counts[tokens]
            if seen >= rank:
                return tokens
        return self.longest


def read_lengths(text: str) -> Lengths:
    """The lengths behind `--lengths`. Raises UsageError, InvalidConfigError."""
    if text.startswith("lognormal:"):
        return _lognormal(text)
    if "," in text or text.strip().rstrip("kKmM").isdigit():
        return _counted((parse_tokens(part, "--lengths") for part in text.split(",")), "the list given")
    if not text.strip():
        raise UsageError("--lengths: the list is empty", "512,1k,8k · trace.csv · lognormal:mean=2k:p99=16k")
    path = user_path(text)
    if not exists(path):
        raise UsageError(
            f"--lengths: '{clean(text, 60)}' is neither a list nor a file", "512,1k,8k · trace.csv · lognormal:mean=2k:p99=16k"
        )
    name = clean(path.name)
    return _counted(_from_text(decode(read_bytes(path, LARGEST_TRACE), name), name), name)


def _counted(values: Iterable[int], origin: str) -> Lengths:
    counts: Counter[int] = Counter()
    for number, tokens in enumerate(values):
        if number >= MOST_REQUESTS:
            raise UsageError(f"--lengths: {origin} has more than {MOST_REQUESTS:,} requests", "sample it")
        counts[tokens] += 1
        if len(counts) > MOST_LENGTHS:
            raise UsageError(f"--lengths: {origin} has more than {MOST_LENGTHS:,} different lengths", "sample it, or round the lengths")
    if not counts:
        raise InvalidConfigError(f"{origin} holds no request lengths")
    return Lengths(dict(counts), origin)


def _from_text(text: str, name: str) -> Iterator[int]:
    """Lengths of a file: JSON Lines if its first character says so, a table if its first line has names, else numbers."""
    first = text.lstrip()[:1]
    if first == "{":
        yield from _from_json(text, name)
        return
    head = text.lstrip().split("\n", 1)[0].strip()
    if head and not head.replace(",", "").replace(" ", "").isdigit():
        yield from _from_csv(text, name)
        return
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            yield _tokens(line.strip(), f"{name}:{number}")


def _from_json(text: str, name: str) -> Iterator[int]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            raise InvalidConfigError(f"{name}:{number}: is not a JSON object") from None
        if not isinstance(row, dict):
            raise InvalidConfigError(f"{name}:{number}: is not a JSON object")
        yield _of_row({str(key).lower(): value for key, value in row.items()}, f"{name}:{number}")


def _from_csv(text: str, name: str) -> Iterator[int]:
    rows = csv.DictReader(io.StringIO(text))
    try:
        for row in rows:
            yield _of_row({str(key).strip().lower(): value for key, value in row.items()}, f"{name}:{rows.line_num}")
    except csv.Error:
        raise InvalidConfigError(f"{name}:{rows.line_num}: is not a row of a table") from None


def _of_row(row: dict[str, Any], place: str) -> int:
    for key in _TOTAL_NAMES:
        if row.get(key) not in (None, ""):
            return _tokens(row[key], place)
    parts = [row[key] for names in (_PROMPT_NAMES, _OUTPUT_NAMES) for key in names if row.get(key) not in (None, "")][:2]
    if not parts:
        known = (*_TOTAL_NAMES, *_PROMPT_NAMES, *_OUTPUT_NAMES)
        near = nearest(next(iter(row), ""), known)
        raise InvalidConfigError(
            f"{place}: has no column of tokens", near or "name one 'tokens', or 'prompt_tokens' and 'completion_tokens'"
        )
    return sum(_tokens(part, place, least=0) for part in parts) or 1


def _tokens(value: object, place: str, *, least: int = 1) -> int:
    text = value.strip() if isinstance(value, str) else value
    if isinstance(text, float) and text.is_integer():
        text = int(text)
    if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 19:
        text = int(text)
    if isinstance(text, bool) or not isinstance(text, int) or not least <= text <= LARGEST:
        raise InvalidConfigError(f"{place}: {clean(repr(value), 40)} is not a number of tokens")
    return text


def _lognormal(text: str) -> Lengths:
    """`lognormal:mean=2k:p99=16k`: from ln p99 = mu + z sigma and ln mean = mu + sigma²/2, the smaller sigma."""
    given: dict[str, int] = {}
    for part in text.split(":")[1:]:
        key, equals, value = part.partition("=")
        if key not in ("mean", "p99") or not equals or key in given:
            raise UsageError(f"--lengths: '{clean(part, 40)}' is no part of a log-normal", "write it like lognormal:mean=2k:p99=16k")
        given[key] = parse_tokens(value, f"--lengths {key}")
    if len(given) != 2 or given["p99"] <= given["mean"]:
        raise UsageError("--lengths: a log-normal needs a mean and a larger p99", "write it like lognormal:mean=2k:p99=16k")
    z = NormalDist().inv_cdf(0.99)
    root = z * z - 2 * math.log(given["p99"] / given["mean"])
    if root < 0:
        most = math.floor(given["mean"] * math.exp(z * z / 2))
        raise UsageError(f"--lengths: no log-normal of mean {given['mean']:,} has a p99 above {most:,}", "lower p99 or raise the mean")
    sigma = z - math.sqrt(root)
    mu = math.log(given["mean"]) - sigma * sigma / 2
    normal = NormalDist(mu, sigma)
    drawn = (max(1, round(math.exp(normal.inv_cdf((n + 0.5) / DRAWN)))) for n in range(DRAWN))
    return _counted(drawn, f"log-normal, mean {given['mean']:,}, p99 {given['p99']:,}")


@dataclass(frozen=True, slots=True)
class Allocation:
    """One way to allocate, over the whole traffic.

    bytes          all requests
    utilisation    bytes in use / bytes allocated
    fits           how many requests fit at once in the budget, by percentile of the mix (estimate); None without a budget
    """

    name: str
    block_size: int | None
    bytes: int
    in_use: int
    fits: dict[str, int] | None

    @property
    def waste(self) -> int:
        """Bytes allocated and never used."""
        return self.bytes - self.in_use

    def document(self) -> AllocationFigures:
        """One of the `allocations` of a document."""
        used = round(self.in_use / self.bytes, 6) if self.bytes else 1.0
        return AllocationFigures(self.name, self.block_size, self.bytes, self.waste, used, self.fits)


@dataclass(frozen=True, slots=True)
class Traffic(Answer):
    """The answer: lengths, allocations side by side, and how many requests of each percentile's length fit."""

    architecture: Architecture
    kv_dtype: str
    lengths: Lengths
    allocations: tuple[Allocation, ...]
    fits_at: dict[str, int | None]
    budget: int | None

    def document(self) -> LengthsDocument:
        """`kvcalc.lengths/1`."""
        found = self.lengths
        return LengthsDocument(
            origin=found.origin,
            requests=found.requests,
            tokens=sum(tokens * count for tokens, count in found.counts.items()),
            longest=found.longest,
            percentiles={f"p{percent}": found.percentile(percent) for percent in PERCENTILES},
            budget=self.budget,
            fits_at=self.fits_at,
            allocations=tuple(allocation.document() for allocation in self.allocations),
            model=model_of(self.architecture),
            kv_dtype=self.kv_dtype,
            workload=None,
            engine=None,
            notes=(),
            warnings=(),
        )


def traffic(architecture: Architecture, kv_dtype: str, lengths: Lengths, budget: int | None = None) -> Traffic:
    """The traffic's bytes under each allocation; `budget` in bytes, all devices together."""
    costs = _costs(architecture, kv_dtype)
    in_use = sum(count * _bytes(costs, tokens, 1) for tokens, count in lengths.counts.items())
    plans: list[tuple[str, int | None]] = [("contiguous", None), *((f"paged, {size}", size) for size in BLOCK_SIZES), ("ideal", 1)]
    allocations = []
    for name, block in plans:
        sizes = {tokens: _bytes(costs, tokens if block else lengths.longest, block or 1) for tokens in lengths.counts}
        total = sum(count * sizes[tokens] for tokens, count in lengths.counts.items())
        fits = None if budget is None else _fits(sizes, lengths, budget)
        allocations.append(Allocation(name, block if block != 1 else None, total, in_use, fits))
    fits_at: dict[str, int | None] = {}
    for percent in PERCENTILES:
        each = _bytes(costs, lengths.percentile(percent), 1)
        fits_at[f"p{percent}"] = None if budget is None or not each else budget // each
    return Traffic(architecture, kv_dtype, lengths, tuple(allocations), fits_at, budget)


def _costs(architecture: Architecture, kv_dtype: str) -> list[tuple[Extent, int]]:
    """Every buffer's extent and the bytes of one of its rows, over all layers."""
    dtype, _ = default_format(architecture)
    formats = get_kv_format(dtype if kv_dtype == "auto" else kv_dtype)
    return [
        (buffer.extent, layers * row_bytes(buffer, formats, dtype, buffer.vectors, buffer.width, buffer.rope)[0])
        for state, layers in architecture.states.items()
        for buffer in state.buffers()
    ]


def _bytes(costs: list[tuple[Extent, int]], tokens: int, block: int) -> int:
    """One request of `tokens` tokens in blocks of `block` slots."""
    return sum(row * (extent.slots(tokens) if extent.is_fixed else -(-extent.slots(tokens) // block) * block) for extent, row in costs)


def _fits(sizes: dict[int, int], lengths: Lengths, budget: int) -> dict[str, int]:
    """The most requests whose sum stays in the budget with each probability: the largest n with n m + z √n s ≤ budget."""
    requests = lengths.requests
    mean = sum(count * sizes[tokens] for tokens, count in lengths.counts.items()) / requests
    spread = math.sqrt(sum(count * (sizes[tokens] - mean) ** 2 for tokens, count in lengths.counts.items()) / requests)
    found: dict[str, int] = {}
    for percent in PERCENTILES:
        z = NormalDist().inv_cdf(percent / 100)
        root = (-z * spread + math.sqrt(z * z * spread * spread + 4 * mean * budget)) / (2 * mean) if mean else 0.0
        found[f"p{percent}"] = math.floor(root * root + 1e-9)
    return found
