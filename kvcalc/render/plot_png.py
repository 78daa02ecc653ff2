"""The chart as PNG (RFC 2083), without any library: shapes are painted with smooth edges, and zlib packs the rows."""

from __future__ import annotations

import math
import struct
import zlib
from itertools import pairwise
from typing import TYPE_CHECKING

from kvcalc.render.plot_font import ROWS, columns, dots
from kvcalc.render.plot_scene import PAPER, Dot, Label, Stroke, scene

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcalc.questions.documents.plot import PlotDocument

#: Pixels a unit of the scene.
SCALE = 2
#: Side of a font's dot in a label of that size, in pixels: seven dots are as high as capitals of the size.
_DOT_PER_SIZE = SCALE * 0.72 / ROWS
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_TRUECOLOUR_8 = (8, 2, 0, 0, 0)


def render(document: PlotDocument) -> bytes:
    """The whole file."""
    drawn = scene(document)
    canvas = _Canvas(drawn.width * SCALE, drawn.height * SCALE)
    for shape in drawn.shapes:
        if isinstance(shape, Label):
            _write(canvas, shape)
        elif isinstance(shape, Dot):
            canvas.segment((shape.x * SCALE, shape.y * SCALE), (shape.x * SCALE, shape.y * SCALE), shape.radius * SCALE, shape.colour)
        else:
            for begin, end in _dashed(shape):
                canvas.segment(begin, end, shape.width * SCALE / 2, shape.colour)
    return _file(canvas)


class _Canvas:
    """Red, green and blue of every pixel."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.pixels = bytearray(bytes.fromhex(PAPER[1:]) * (width * height))

    def blend(self, x: int, y: int, cover: float, ink: bytes) -> None:
        """A pixel that `ink` covers by a share from 0 to 1."""
        place = 3 * (y * self.width + x)
        for channel, wanted in enumerate(ink):
            found = self.pixels[place + channel]
            self.pixels[place + channel] = round(found + (wanted - found) * cover)

    def segment(self, begin: tuple[float, float], end: tuple[float, float], radius: float, colour: str) -> None:
        """Everything within `radius` of a straight line, a pixel at the edge by the share that lies inside."""
        ink = bytes.fromhex(colour[1:])
        (left, top), (across, down) = begin, (end[0] - begin[0], end[1] - begin[1])
        square = across * across + down * down
        reach = radius + 1
        for y in range(max(0, math.floor(min(top, end[1]) - reach)), min(self.height, math.ceil(max(top, end[1]) + reach))):
            for x in range(max(0, math.floor(min(left, end[0]) - reach)), min(self.width, math.ceil(max(left, end[0]) + reach))):
                right, below = x + 0.5 - left, y + 0.5 - top
                along = min(max((right * across + below * down) / square, 0.0), 1.0) if square else 0.0
                cover = radius + 0.5 - math.hypot(right - along * across, below - along * down)
                if cover > 0:
                    self.blend(x, y, min(cover, 1.0), ink)

    def square(self, x: float, y: float, side: float, colour: str) -> None:
        """A square whose corner is at a point, a pixel at the edge by the share that lies inside."""
        ink = bytes.fromhex(colour[1:])
        for row in range(max(0, math.floor(y)), min(self.height, math.ceil(y + side))):
            high = min(row + 1, y + side) - max(row, y)
            for column in range(max(0, math.floor(x)), min(self.width, math.ceil(x + side))):
                self.blend(column, row, high * (min(column + 1, x + side) - max(column, x)), ink)


def _write(canvas: _Canvas, label: Label) -> None:
    side = label.size * _DOT_PER_SIZE
    left = label.x * SCALE - {"start": 0.0, "middle": 0.5, "end": 1.0}[label.anchor] * columns(label.text) * side
    top = label.y * SCALE - ROWS * side
    for column, row in dots(label.text):
        canvas.square(left + column * side, top + row * side, side, label.colour)


def _dashed(stroke: Stroke) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
    """The straight pieces of a line, cut where its dashes end."""
    pattern = [float(length * SCALE) for length in stroke.dash] or [math.inf]
    turn, left = 0, pattern[0]
    for (x, y), (next_x, next_y) in pairwise((x * SCALE, y * SCALE) for x, y in stroke.points):
        length = math.hypot(next_x - x, next_y - y)
        done = 0.0
        while done < length:
            step = min(left, length - done)
            if turn % 2 == 0:
                begin, end = done / length, (done + step) / length
                yield (x + (next_x - x) * begin, y + (next_y - y) * begin), (x + (next_x - x) * end, y + (next_y - y) * end)
            done, left = done + step, left - step
            if left <= 0:
                turn += 1
                left = pattern[turn % len(pattern)]


def _file(canvas: _Canvas) -> bytes:
    """Signature, header, one run of packed rows (each behind a 0: no filter), end."""
    row = canvas.width * 3
    rows = b"".join(b"\0" + canvas.pixels[y * row : (y + 1) * row] for y in range(canvas.height))
    header = struct.pack(">IIBBBBB", canvas.width, canvas.height, *_TRUECOLOUR_8)
    return _SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(rows, 9)) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
