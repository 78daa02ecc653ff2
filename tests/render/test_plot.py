"""Charts as text, SVG and PNG: everything inside the frame, round labels, and the same picture every time."""

from __future__ import annotations

import re
import struct
import xml.etree.ElementTree as ET
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typed import of_plain

from kvcalc.core.workload import Workload
from kvcalc.questions.documents.plot import PlotDocument
from kvcalc.questions.plot import Plotting, plot
from kvcalc.render import html_page, markdown, plain, plot_axes, plot_png, plot_scene, plot_svg, plot_text, plot_view, plot_words
from kvcalc.render.plot_axes import MOST_TICKS, short_tokens, unit_of
from kvcalc.render.plot_font import columns, dots
from kvcalc.render.plot_scene import COLOURS, DASHES, Dot, Stroke
from kvcalc.render.plot_text import HEIGHT, MARKS

GIB = 1024**3
axes, scene, chart = (of_plain(made, PlotDocument) for made in (plot_axes.axes, plot_scene.scene, plot_text.chart))
view, headline, legend, title = (
    of_plain(made, PlotDocument) for made in (plot_view.view, plot_words.headline, plot_words.legend, plot_words.title)
)
as_svg, as_png = of_plain(plot_svg.render, PlotDocument), of_plain(plot_png.render, PlotDocument)
HOSTILE = "evil <&\"'> \x1b[31m ]]> </svg>"


def document(**changes: Any) -> dict[str, Any]:
    """Two lines of two points each, and no more."""
    series = [
        {
            "name": name,
            "model": {"id": name},
            "engine": {"name": "ideal", "version": "1", "args": {}},
            "kv_dtype": "bf16",
            "points": [{"context": context, "total": size, "per_device": size} for context, size in points],
            "max_context": 2048,
        }
        for name, points in (("steep", ((1024, GIB), (16_384, 16 * GIB))), ("flat", ((1024, 2 * GIB), (16_384, 2 * GIB))))
    ]
    workload = {"context": 16_384, "sequences": 1, "tensor_parallel": 1, "pipeline_parallel": 1}
    return {
        "model": None,
        "workload": workload,
        "engine": None,
        "kv_dtype": "bf16",
        "figure": "total",
        "scale": "log",
        "from": 1024,
        "kv_memory": None,
        "series": series,
        "notes": [],
        "warnings": [],
    } | changes


def hostile() -> dict[str, Any]:
    found = document()
    found["series"][0]["name"] = HOSTILE
    return found


# ── axes ────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_round_labels_in_one_unit() -> None:
    across, up = axes(document())
    assert [label for _, label in across.ticks] == ["1k", "2k", "4k", "8k", "16k"]
    assert [label for _, label in up.ticks] == ["1", "2", "4", "8", "16"]
    assert up.title == "KV cache, GiB"
    _, up = axes(document(scale="linear", kv_memory=40 * GIB, figure="per_device"))
    assert [label for _, label in up.ticks] == ["0", "8", "16", "24", "32", "40"]
    assert up.title == "KV cache of the fullest device, GiB"


def test_an_axis_that_goes_below_its_unit_names_a_unit_at_each_tick() -> None:
    found = document()
    found["series"][1]["points"] = [
        {"context": 1024, "total": 2**24, "per_device": 2**24},
        {"context": 16_384, "total": 2**28, "per_device": 2**28},
    ]
    _, up = axes(found)
    assert [label for _, label in up.ticks] == ["16 MiB", "64 MiB", "256 MiB", "1 GiB", "4 GiB", "16 GiB"]
    assert up.title == "KV cache"
    assert " 16 MiB |" in "\n".join(chart(found, 60))


def test_units_and_tokens() -> None:
    assert [unit_of(size)[0] for size in (3 * GIB, GIB, GIB - 1, 1024, 1023)] == ["GiB", "GiB", "MiB", "KiB", "B"]
    assert [short_tokens(count) for count in (1024, 131_072, 1024**2, 1000, 1536, 0)] == ["1k", "128k", "1m", "1,000", "1,536", "0"]


@given(
    st.integers(1, 10**8),
    st.integers(1, 10**8),
    st.lists(st.integers(0, 10**15), min_size=2, max_size=2),
    st.one_of(st.none(), st.integers(1, 10**15)),
    st.sampled_from(["log", "linear"]),
)
def test_any_figures_have_axes(start: int, width: int, sizes: list[int], memory: int | None, scale: str) -> None:
    found = document(scale=scale, kv_memory=memory, **{"from": start})
    found["workload"] |= {"context": start + width}
    found["series"] = found["series"][:1]
    found["series"][0]["points"] = [
        {"context": context, "total": size} for context, size in zip((start, start + width), sizes, strict=True)
    ]
    across, up = axes(found)
    for axis in (across, up):
        assert axis.low < axis.high
        assert 2 <= len(axis.ticks) <= MOST_TICKS
        assert [axis.low <= tick <= axis.high for tick, _ in axis.ticks]
        places = [axis.place(tick) for tick, _ in axis.ticks]
        assert places == sorted(places)
    assert across.place(start) == 0
    assert across.place(start + width) == 1
    assert all(0 <= up.place(size) <= 1 for size in sizes)
    if sizes[0] < sizes[1]:
        assert up.place(sizes[0]) <= up.place(sizes[1])
    chart(found, 80)
    scene(found)


# ── text ────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_chart_as_text() -> None:
    lines = chart(document(), 40)
    assert lines[0] == "KV cache, GiB"
    plot_lines = lines[1 : HEIGHT + 1]
    assert plot_lines[0].startswith("16 | ")
    assert plot_lines[-1].startswith(" 1 |a")
    assert lines[HEIGHT + 1] == "   ++-------+--------+--------+-------+"
    # From the bottom left to the top right, each row a step further to the left.
    assert [len(line) for line in plot_lines[:2]] == [39, 37]
    places = [line.index("a", 4) for line in plot_lines if "a" in line]
    assert places == sorted(set(places), reverse=True)
    assert len(places) == HEIGHT - 1, "the row where the later line lies over it"
    assert sum("bbbb" in line for line in lines) == 1
    assert lines[-2:] == ["a  steep: 16 GiB at 16,384", "b  flat: 2 GiB at 16,384"]


def test_a_memory_is_a_line_across() -> None:
    lines = chart(document(kv_memory=4 * GIB), 60)
    assert sum("====" in line for line in lines) == 1
    assert next(line for line in lines if "====" in line).strip().startswith("4 |")
    assert lines[-1] == "=  memory for the cache: 4 GiB"
    assert lines[-3] == "a  steep: 16 GiB at 16,384, 2,048 tokens fit"


@pytest.mark.parametrize("width", [1, 30, 80, 200])
def test_text_is_plain_and_no_wider_than_the_terminal(width: int) -> None:
    for line in chart(hostile(), width)[: HEIGHT + 4]:
        assert len(line) <= max(width, 30)
        assert line.isascii()
        assert line.isprintable()


def test_the_table_has_the_ends_and_the_powers_of_two() -> None:
    table = view(plot(Plotting(Workload(), models=("llama-2-7b", "llama-3.1-8b"), start=1000)).document()).blocks[1]
    contexts = [row[0] for row in table.rows]  # type: ignore[union-attr]
    assert contexts == [1000, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072]
    assert table.rows[3][1] == 4096 * 524_288  # type: ignore[union-attr]
    assert table.rows[4][1] is None  # type: ignore[union-attr]


# ── words ───────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_no_control_character_reaches_a_terminal() -> None:
    for render in (plain.render, markdown.render, html_page.render):
        assert "\x1b" not in render(view(hostile()))


def test_the_first_line_is_the_largest_figure() -> None:
    assert headline(document()) == (
        "17,179,869,184 B (16 GiB) for 16,384 (16k) tokens: steep; smallest: 2,147,483,648 B (2 GiB) for 16,384 (16k) tokens: flat"
    )
    assert headline(document(kv_memory=GIB)).endswith("; 1,073,741,824 B (1 GiB) hold 2,048 tokens (steep), 2,048 tokens (flat)")
    alone = document(kv_memory=GIB)
    alone["series"] = alone["series"][:1]
    alone["series"][0]["max_context"] = None
    assert headline(alone).endswith("steep; 1,073,741,824 B (1 GiB) hold no tokens")
    assert legend(alone) == ["steep: 16 GiB at 16,384, no tokens fit", "memory for the cache: 1 GiB"]


def test_the_title_is_what_all_lines_share() -> None:
    assert title(document()) == title(document(model={"id": "introduction", "source": ""})) == "KV cache, bf16"
    found = document(model={"id": "gpt2", "source": "model_configs/gpt2.yaml"}, kv_dtype=None)
    found["workload"] |= {"sequences": 16, "tensor_parallel": 2}
    for entry in found["series"]:
        entry["engine"] = {"name": "vllm"}
    assert title(found) == "KV cache of gpt2 under vllm, 16 sequences, 2 x tensor parallel"


# ── pictures ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_svg_is_well_formed_and_says_what_it_shows() -> None:
    text = as_svg(hostile())
    root = ET.fromstring(text)  # noqa: S314  written a line above
    space = "{http://www.w3.org/2000/svg}"
    assert root.tag == f"{space}svg"
    assert {element.tag.removeprefix(space) for element in root.iter()} == {"svg", "title", "desc", "rect", "polyline", "circle", "text"}
    assert root.findtext(f"{space}title") == "KV cache, bf16"
    assert root.get("role") == "img"
    assert "\x1b" not in text
    written = [element.text or "" for element in root.iter(f"{space}text")]
    assert {"KV cache, GiB", "tokens per sequence", "16", "1k", "flat: 2 GiB at 16,384"} <= set(written)
    assert any(entry.startswith("evil <&\"'>") for entry in written)


@pytest.mark.parametrize("changes", [{}, {"kv_memory": 64 * GIB, "figure": "per_device"}, {"scale": "linear"}])
def test_everything_lies_inside_the_frame(changes: dict[str, Any]) -> None:
    drawn = scene(document(**changes))
    for shape in drawn.shapes:
        for x, y in shape.points if isinstance(shape, Stroke) else [(shape.x, shape.y)]:
            assert 0 <= x <= drawn.width
            assert 0 <= y <= drawn.height


def test_lines_differ_in_colour_and_in_dashes() -> None:
    """What two lines share in colour they do not share in dashes; four neighbours differ in both."""
    styles = {(COLOURS[place % len(COLOURS)], DASHES[place % len(DASHES)]) for place in range(len(MARKS))}
    assert len(styles) == len(MARKS)
    assert len(set(COLOURS)) == len(COLOURS)


def test_a_picture_is_the_same_every_time() -> None:
    assert as_svg(document()) == as_svg(document())
    assert as_png(document()) == as_png(document())


def decode(data: bytes) -> tuple[int, int, bytes]:
    """Width, height and pixels of a PNG whose rows have no filter; every checksum holds."""
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    place, chunks = 8, []
    while place < len(data):
        (length,) = struct.unpack_from(">I", data, place)
        kind, body = data[place + 4 : place + 8], data[place + 8 : place + 8 + length]
        assert struct.unpack_from(">I", data, place + 8 + length) == (zlib.crc32(kind + body),)
        chunks.append((kind, body))
        place += 12 + length
    assert [kind for kind, _ in chunks] == [b"IHDR", b"IDAT", b"IEND"]
    width, height, *rest = struct.unpack(">IIBBBBB", chunks[0][1])
    assert rest == [8, 2, 0, 0, 0]
    rows = zlib.decompress(chunks[1][1])
    stride = 1 + 3 * width
    assert len(rows) == stride * height
    assert {rows[y * stride] for y in range(height)} == {0}
    return width, height, b"".join(rows[y * stride + 1 : (y + 1) * stride] for y in range(height))


def test_png_paints_the_same_scene() -> None:
    drawn = scene(document(kv_memory=4 * GIB))
    width, height, pixels = decode(as_png(document(kv_memory=4 * GIB)))
    assert (width, height) == (2 * drawn.width, 2 * drawn.height)

    def at(x: float, y: float) -> str:
        place = 3 * (int(2 * y) * width + int(2 * x))
        return "#" + pixels[place : place + 3].hex()

    assert at(0, 0) == at(drawn.width - 1, drawn.height - 1) == "#ffffff"
    for shape in drawn.shapes:
        if isinstance(shape, Dot):
            assert at(shape.x, shape.y) == shape.colour
    solid = next(shape for shape in drawn.shapes if isinstance(shape, Stroke) and shape.colour == COLOURS[0])
    (x, y), (end_x, end_y) = solid.points
    assert at((x + end_x) / 2, (y + end_y) / 2) == COLOURS[0]


def test_the_font_draws_each_character_differently() -> None:
    printable = [chr(code) for code in range(0x20, 0x7F)]
    drawn = {character: tuple(dots(character)) for character in printable}
    assert len(set(drawn.values())) == len(printable)
    assert drawn[" "] == ()
    assert all(column < 5 and row < 8 for found in drawn.values() for column, row in found)
    picture = ["".join("#" if (column, row) in drawn["T"] else "." for column in range(5)) for row in range(7)]
    assert picture == ["#####", *["..#.."] * 6]
    assert dots("é") == dots("?")
    assert (columns(""), columns("a"), columns("ab")) == (0, 5, 11)
    assert re.fullmatch(r"[ -~]+", "".join(printable))
