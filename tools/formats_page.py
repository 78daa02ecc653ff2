"""Write docs/formats.md from kvcalc/formats.py.

python tools/formats_page.py
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kvcalc.core import formats
from kvcalc.core.errors import UsageError
from kvcalc.core.formats import ALIASES, FORMATS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kvcalc.core.formats import Format

TARGET = Path(__file__).parent.parent / "docs" / "formats.md"
_MADE = "<!-- Written by tools/formats_page.py from kvcalc/formats.py. Change the code, then run `make docs`. -->"
#: One head of 128 (most models), and an MLA row of 512 + 64 (DeepSeek).
_HEAD, _LATENT = 128, (512, 64)


def pages() -> dict[Path, str]:
    """The page's path and text."""
    return {TARGET: "\n".join(_lines()) + "\n"}


def _lines() -> Iterator[str]:
    title, *rest = (formats.__doc__ or "").strip().split("\n")
    yield from ("# Storage formats", "", _MADE, "", title, "")
    yield from ("```text", *(line.removeprefix("    ") for line in rest if line.startswith("    ")), "```", "")
    yield from _paragraphs([line for line in rest if not line.startswith("    ")])
    yield "`--kv-dtype auto`, the default, is the engine's own choice: mostly the checkpoint's type. `K/V` sets both apart: `q8_0/q4_0`."
    yield from (
        "",
        "| format | a row | K and V of a head of 128 | of bf16 | an MLA row of 512 + 64 | what it is |",
        "|---|---|--:|--:|--:|---|",
    )
    yield from (_row(item) for item in FORMATS.values())
    yield from ("", "A dash: the format cannot hold such a row. Which formats an engine takes stands on [its page](README.md#engines).")
    yield from ("", "## Other spellings", "", "| written | means |", "|---|---|")
    yield from (f"| `{alias}` | `{name}` |" for alias, name in ALIASES.items())
    yield from ("", "```console", "$ kvcalc explain q8_0", "$ kvcalc explain q8_0/q4_0", "```")


def _paragraphs(lines: list[str]) -> Iterator[str]:
    while lines and not lines[0]:
        lines.pop(0)
    yield from lines
    yield ""


def _row(item: Format) -> str:
    pair = _or_none(lambda: item.key_bytes(_HEAD, 1) + item.value_bytes(_HEAD, 1))
    latent = _or_none(lambda: item.latent_bytes(*_LATENT))
    cells = (
        f"`{item.name}`",
        item.formula,
        "-" if pair is None else f"{pair:,} B",
        "-" if pair is None else f"{pair * 100 / (4 * _HEAD):.1f} %",
        "-" if latent is None else f"{latent:,} B",
        item.about,
    )
    return "| " + " | ".join(cells) + " |"


def _or_none(size: Callable[[], int]) -> int | None:
    try:
        return size()
    except UsageError:
        return None


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
