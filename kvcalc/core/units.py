"""Tokens and bytes, as people write them and as kvcalc prints them.

    tokens   4096 · 32k · 128k · 1m · 1.5k       k = 1024, m = 1024²
    bytes    24GiB · 512MiB · 64KiB · 80GB · 100 bare numbers are bytes; GiB, MiB, KiB binary, GB, MB, kB decimal

Both parse to integers with integer arithmetic: no float ever carries a byte. Errors: `UsageError`.
"""

from __future__ import annotations

import re

from kvcalc.core.errors import UsageError

KIB = 1024
MIB = 1024**2
GIB = 1024**3
TIB = 1024**4

#: Larger than any context or memory that could be meant; keeps hostile input from making huge integers.
LARGEST = 10**18

_TOKEN_SUFFIXES = {"": 1, "k": KIB, "m": MIB}
_BYTE_SUFFIXES = {
    "": 1,
    "b": 1,
    "kib": KIB,
    "mib": MIB,
    "gib": GIB,
    "tib": TIB,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
}
#: A comma or an underline stands between thousands; 1,5 is no number, because half of the world means 1.5 by it.
_NUMBER = re.compile(r"((?:[0-9]{1,31}|[0-9]{1,3}(?:[,_][0-9]{3}){1,9})(?:\.[0-9]{1,12})?)\s*([A-Za-z]*)", re.ASCII)
_SHOWN = 40
#: What CI systems obey when a log holds it: `::command::` where a line begins, `##[command]` and `##vso[command]` anywhere.
_COMMAND_LINE = re.compile(r"^[^\S\n]*:(?=:)", re.ASCII | re.MULTILINE)
_COMMAND = re.compile(r"^(\s*:)(?=:)|(#)(?=#\w*\[)", re.ASCII)


def unobeyed(text: str) -> str:
    """`text` of several lines, with a blank inside of `::` wherever a line begins with it: CI systems obey such a line."""
    return _COMMAND_LINE.sub(r"\g<0> ", text) if "::" in text else text


def clean(text: object, limit: int = 80) -> str:
    """`text` made fit for a terminal and a CI log: control characters replaced, commands broken apart, cut to `limit` characters."""
    printable = "".join(ch if ch.isprintable() else "\N{REPLACEMENT CHARACTER}" for ch in str(text)[: limit + 1])
    printable = _COMMAND.sub(r"\g<0> ", printable)
    return printable if len(printable) <= limit else printable[: limit - 1] + "…"


def _scaled(text: str, suffixes: dict[str, int], what: str, example: str) -> int:
    match = _NUMBER.fullmatch(text.strip())
    scale = suffixes.get(match[2].lower()) if match else None
    if match is None or scale is None:
        raise UsageError(f"{what}: '{clean(text, _SHOWN)}' is not a size", f"write it like {example}")
    whole, _, decimals = match[1].replace(",", "").replace("_", "").partition(".")
    parts: int = 10 ** len(decimals)
    value, rest = divmod(int(whole + decimals) * scale, parts)
    if rest:
        raise UsageError(f"{what}: '{clean(text, _SHOWN)}' is not a whole number", f"write it like {example}")
    if value > LARGEST:
        raise UsageError(f"{what}: '{clean(text, _SHOWN)}' is larger than anything kvcalc computes", f"at most {LARGEST:,}")
    return value


def parse_tokens(text: str | int, what: str = "--ctx", *, least: int = 1) -> int:
    """Tokens as an integer of at least `least`: `parse_tokens("128k") == 131072`."""
    value = checked_int(text, what) if isinstance(text, int) else _scaled(text, _TOKEN_SUFFIXES, what, "4096, 32k, 128k or 1m")
    if value < least:
        raise UsageError(f"{what}: {value} is too small", f"at least {least}")
    return value


def parse_bytes(text: str | int, what: str = "size") -> int:
    """Bytes as an integer: `parse_bytes("24GiB") == 25769803776`."""
    if isinstance(text, int):
        return checked_int(text, what)
    return _scaled(text, _BYTE_SUFFIXES, what, "24GiB, 512MiB, 80GB or 1073741824")


def checked_int(value: object, what: str, *, least: int = 0) -> int:
    """`value` if it is an integer (no bool, no float) between `least` and `LARGEST`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"{what}: {clean(repr(value), _SHOWN)} is not a whole number", "write an integer")
    if not least <= value <= LARGEST:
        raise UsageError(f"{what}: {clean(value, _SHOWN)} is out of range", f"between {least} and {LARGEST:,}")
    return value


def show_bytes(count: int) -> str:
    """`68,719,476,736 B (64 GiB)`: the exact figure first, the reading aid behind it."""
    return f"{count:,} B ({human(count)})" if abs(count) >= KIB else f"{count:,} B"


def human(count: int) -> str:
    """`64 GiB`, `1.5 KiB`, `784.33 MiB`: binary, at most two decimals, integers kept exact."""
    for unit, size in (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if abs(count) >= size:
            hundredths = (count * 100 + size // 2) // size
            whole, rest = divmod(hundredths, 100)
            return f"{whole:,} {unit}" if rest == 0 else f"{whole:,}.{rest:02d}".rstrip("0") + f" {unit}"
    return f"{count:,} B"


def show_tokens(count: int) -> str:
    """`131,072 (128k)` where a power of 1024 divides the count, else `100,000`."""
    if count and count % MIB == 0:
        return f"{count:,} ({count // MIB}m)"
    if count and count % KIB == 0:
        return f"{count:,} ({count // KIB}k)"
    return f"{count:,}"
