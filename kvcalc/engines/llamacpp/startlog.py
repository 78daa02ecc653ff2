"""llama.cpp's start-up log, by itself or under a program that runs it.

llama_context: n_ctx = 32768 · n_seq_max = 4 · kv_unified = true · n_ubatch = 512
llama_kv_cache: size = 3072.00 MiB (131072 cells, 12 layers, 1/1 seqs), K (f16): 1536.00 MiB, V (f16): 1536.00 MiB
llama_memory_recurrent: size = 301.50 MiB (4 cells, 48 layers, 4 seqs 0 rs_seq), R (f32): 13.50 MiB, S (f32): 288.00 MiB
llama_kv_cache: CUDA0 KV buffer size = 3072.00 MiB          a device's share, read where the sizes themselves are not printed
llama_model_loader: - kv  10:  llama.block_count u32 = 32          the model itself, unless an array is shortened

A server with a draft has two contexts, and each prints all of this; so does one that is started again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from kvcalc.core.errors import KvcalcError, UsageError
from kvcalc.core.formats import get_kv_format
from kvcalc.core.workload import Workload
from kvcalc.engines import get_engine
from kvcalc.engines.base.logs import Recogniser, Row, Suspects, explained
from kvcalc.engines.base.printed import Printed, printed
from kvcalc.engines.base.trouble import Longer, Truncation
from kvcalc.engines.llamacpp.truncation import MARKS as TRUNCATION_MARKS
from kvcalc.engines.llamacpp.truncation import TruncationReader, longer, slot

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kvcalc.core.architecture import Architecture

_SIZE = re.compile(
    r"llama_(kv_cache\w*|memory_recurrent|memory_hybrid\w*): +size = +([0-9.]+) (MiB) \( *([0-9]+) cells, +([0-9]+) layers"
    r"(?:, +([0-9]+)(?:/ *([0-9]+))? seqs(?: +([0-9]+) rs_seq)?)?\)(?:, K \((\w+)\): +[0-9.]+ MiB)?(?:, V \((\w+)\))?"
)
_OLD_TOTAL = re.compile(r"(?i:KV self size) +=? *([0-9.]+) (MiB|MB)(?:, K \((\w+)\): +[0-9.]+ M(?:iB|B), V \((\w+)\))?")
_BUFFER = re.compile(r"llama_(?:kv_cache|memory_recurrent)\w*: +\S.{0,60} (KV|RS) buffer size = +([0-9.]+) (MiB)")
_SETTING = re.compile(
    r"llama_(?:context|new_context_with_model|init_from_model): +(n_ctx|n_ctx_seq|n_batch|n_ubatch|n_seq_max|kv_unified|flash_attn) += +(\w+)"
)
_SHARE = re.compile(r"llama_context: n_ctx_(?:per_)?seq \(([0-9]+)\) <")
#: Decimals under a locale that writes them with a comma: `224,00 MiB`.
_COMMA = re.compile(r"(?<=[0-9]),(?=[0-9]{2} M(?:i)?B)")
_METADATA = re.compile(
    r"- kv +[0-9]+: +([A-Za-z0-9_.\-]{1,120}) +(u8|i8|u16|i16|u32|i32|u64|i64|f32|f64|bool|str|arr\[\w+,[0-9]+\]) += +(.{0,4000})"
)
_NAMES = {
    "n_ctx": "ctx_size",
    "n_batch": "batch_size",
    "n_ubatch": "ubatch_size",
    "n_seq_max": "parallel",
    "kv_unified": "kv_unified",
    "flash_attn": "flash_attn",
}
_FLASH = {"0": "off", "1": "on", "disabled": "off", "enabled": "on", "auto": "auto", "false": "off", "true": "on"}
_LONGEST_METADATA = 4096


@dataclass(slots=True)
class Context:
    """What one context prints: its settings, and sizes by kind ("attention", "recurrent").

    sizes      caches, as the engine sums them itself        buffers    the same by device
    cells      of the longest cache: cells a stream, sequences, streams      share   n_ctx_seq
    """

    settings: dict[str, Any] = field(default_factory=dict)
    sizes: dict[str, list[Printed]] = field(default_factory=dict)
    buffers: dict[str, list[Printed]] = field(default_factory=dict)
    cells: tuple[int, int | None, int | None] = (0, None, None)
    share: int | None = None

    @property
    def is_filled(self) -> bool:
        """Some cache was printed."""
        return bool(self.sizes or self.buffers)

    def total(self, kind: str) -> Printed | None:
        """All caches of that kind, as precisely as they were printed."""
        figures = self.sizes.get(kind) or self.buffers.get(kind)
        if not figures:
            return None
        zero = Fraction(0)
        return Printed(
            sum((figure.value for figure in figures), zero), sum((figure.half for figure in figures), zero), "MiB", figures[0].line
        )

    def workload(self, **more: Any) -> Workload:
        """The question that this context answers: as printed, else as the cells of its caches say."""
        settings = dict(self.settings)
        cells, sequences, streams = self.cells
        if sequences:
            settings.setdefault("parallel", sequences)
        settings.setdefault("parallel", 1)
        settings.setdefault("kv_unified", settings["parallel"] == 1 or streams == 1)
        parts = 1 if settings["kv_unified"] else settings["parallel"]
        if "ctx_size" not in settings and (cells or self.share):
            settings["ctx_size"] = cells * (streams or 1) if cells else (self.share or 0) * parts
        settings |= more
        # The log prints the context in force for all slots; a unified cache prints the same for each of them.
        return Workload(context=settings.get("ctx_size"), engine_args=settings)


class LlamaCppLog(Recogniser):
    """llama.cpp and llama-server."""

    engine: ClassVar[str] = "llama.cpp"
    #: Its lines stand in the logs of programs that run it, and those know more.
    preference: ClassVar[int] = -1
    marks: ClassVar[tuple[bytes, ...]] = (
        b"llama_kv_cache",
        b"llama_memory_",
        b"llama_context:",
        b"llama_new_context",
        b"llama_init_from_model",
        b"KV self size",
        b"kv self size",
        b"- kv ",
        *TRUNCATION_MARKS,
    )

    def __init__(self) -> None:
        super().__init__()
        self._contexts = [Context()]
        self._metadata: dict[str, Any] = {}
        self._shortened = False
        self._notes: list[str] = []
        self._truncation = TruncationReader()

    @property
    def recognised(self) -> bool:
        """A cache of some context was found."""
        return bool(self._filled)

    @property
    def _filled(self) -> list[Context]:
        return [context for context in self._contexts if context.is_filled]

    @property
    def metadata(self) -> dict[str, Any]:
        """The GGUF metadata, empty if an array of it was shortened."""
        return {} if self._shortened or "general.architecture" not in self._metadata else self._metadata

    def feed(self, line: str, number: int) -> None:
        """Sizes, settings and metadata of one line."""
        if "constructing llama_context" in line and self._contexts[-1].is_filled:
            self._contexts.append(Context())
        setting, share = _SETTING.search(line), _SHARE.search(line)
        if setting:
            self._setting(setting[1], setting[2])
        if share:
            self._setting("n_ctx_seq", share[1])
        self._size(line, number)
        entry = _METADATA.search(line)
        if entry and len(self._metadata) < _LONGEST_METADATA and not self._filled:  # a draft's or a projector's comes after it
            self._entry(entry[1], entry[2], entry[3].strip())

    def hear(self, line: str, number: int) -> None:
        """What the line says of a prompt that is too long."""
        self._truncation.hear(line, number)

    @property
    def complains(self) -> bool:
        """A prompt was refused in llama.cpp's own words."""
        return bool(self._truncation.line) and not self._truncation.cut_first

    def complaint(self) -> Truncation | None:
        """The longest prompt that was cut or refused."""
        found = self._truncation
        return Truncation(found.line, found.prompt, found.limit, slot(self.seen.settings)) if found.line else None

    def longer(self, architecture: Architecture, context: int) -> Longer:
        """More cells, for all slots together."""
        cells, size, slots = longer(architecture, self.seen.settings, context)
        return Longer(f"-c {cells}", "", size, slots)

    def _size(self, line: str, number: int) -> None:
        line = _COMMA.sub(".", line)
        size, old, buffer = _SIZE.search(line), _OLD_TOTAL.search(line), _BUFFER.search(line)
        context = self._contexts[-1]
        if size:
            kind = "recurrent" if "recurrent" in size[1] else "attention"
            context.sizes.setdefault(kind, []).append(printed(size[2], number, size[3]))
            self._types(size[9], size[10])
            counts = [int(text) if text else None for text in (size[4], size[6], size[7])]
            if kind == "attention" and (counts[0] or 0) > context.cells[0]:
                context.cells = (counts[0] or 0, counts[1], counts[2])
            if size[8] and int(size[8]):
                context.settings["n_rs_seq"] = int(size[8])
        elif old:
            context.sizes.setdefault("attention", []).append(printed(old[1], number, old[2]))
            self._types(old[3], old[4])
        elif buffer:
            kind = "attention" if buffer[1] == "KV" else "recurrent"
            context.buffers.setdefault(kind, []).append(printed(buffer[2], number, buffer[3]))

    def _types(self, key: str | None, value: str | None) -> None:
        for name, found in (("cache_type_k", key), ("cache_type_v", value)):
            if found:
                self._contexts[-1].settings.setdefault(name, found.lower())

    def _setting(self, name: str, text: str) -> None:
        context = self._contexts[-1]
        if context.is_filled:
            if name not in ("n_ctx", "n_seq_max"):
                return  # said again, or said late
            context = Context()
            self._contexts.append(context)
        if name == "n_ctx_seq":
            context.share = int(text) if text.isdigit() else None
            return
        if name == "flash_attn":
            value: Any = _FLASH.get(text.lower(), "auto")
        elif name == "kv_unified":
            value = text.lower() == "true"
        else:
            value = int(text) if text.isdigit() else None
        if value is not None:
            context.settings[_NAMES[name]] = value

    def _entry(self, key: str, kind: str, text: str) -> None:
        if key.startswith("tokenizer."):
            return
        if kind.startswith("arr"):
            self._array(key, kind, text)
        elif kind == "str":
            self._metadata[key] = text
            if key == "general.name":
                self.seen.model = text[:200]
        elif kind == "bool":
            self._metadata[key] = text == "true"
        elif kind.startswith("f"):
            self._metadata[key] = float(text) if re.fullmatch(r"-?[0-9.]+(e[-+]?[0-9]+)?", text) else 0.0
        elif text.lstrip("-").isdigit():
            self._metadata[key] = int(text)

    def _array(self, key: str, kind: str, text: str) -> None:
        length = int(kind.rpartition(",")[2].rstrip("]"))
        items = [item.strip() for item in text.strip("[]").split(",")]
        if len(items) != length or not all(re.fullmatch(r"-?[0-9]+|true|false", item) for item in items):
            self._shortened = self._shortened or not key.startswith(("general.", "tokenizer."))
            return
        self._metadata[key] = [item == "true" if item in ("true", "false") else int(item) for item in items]

    def give(self, settings: Mapping[str, Any]) -> list[str]:
        """Settings of every context; a type is one of K and of V. Raises UsageError for what changes none of the printed sums."""
        asked = self.read_given(settings)
        useless = [name for name in ("gpu", "tensor_parallel") if name in asked]
        if useless:
            raise UsageError(f"{' and '.join(useless)}: llama.cpp prints the bytes of all devices together", "leave it out")
        if "kv_dtype" in asked:
            types = get_kv_format(asked.pop("kv_dtype"))
            asked |= {"cache_type_k": types.key.name, "cache_type_v": types.value.name}
        self.seen.settings = dict(self._contexts[0].settings)
        notes = super().give(asked)
        for context in self._contexts:
            context.settings.update(asked)
        return notes

    @property
    def notes(self) -> tuple[str, ...]:
        """Which contexts were left out."""
        return tuple(self._notes)

    def rows(self, architecture: Architecture) -> list[Row]:
        """The attention caches together, and the recurrent state; of the first context, and of any other that is this model's too."""
        first, *others = self._filled
        self.seen.settings = dict(first.workload().engine_args)
        found = explained(list(_rows(architecture, first)), (_SUSPECTS,), lambda more: _rows(architecture, first, **more))
        known = {(row.figure, row.logged) for row in found}
        for context in others:
            for more in ({}, {"mtp_context": True}):
                try:
                    again = list(_rows(architecture, context, **more))
                except KvcalcError:
                    continue
                if all((row.figure, row.logged) in known for row in again):
                    break
                if all(row.within for row in again):
                    label = "draft context: " if more else "another context: "
                    found += [replace(row, figure=label + row.figure) for row in again]
                    break
            else:
                self._notes.append("another context was left out: its figures are not this model's (a draft model?)")
        return found


def _rows(architecture: Architecture, context: Context, **more: Any) -> Iterator[Row]:
    sums = _sums(architecture, context.workload(**more))
    for kind, label in (("attention", "KV cache"), ("recurrent", "recurrent state")):
        total = context.total(kind)
        if total is not None:
            expected = Fraction(sums[kind])
            yield Row(label, "bytes", total.line, total.value, expected, expected, total.holds(expected, expected))


def _sums(architecture: Architecture, asked: Workload) -> dict[str, int]:
    """Bytes of attention caches and of recurrent state."""
    sums = {"attention": 0, "recurrent": 0}
    for line in get_engine("llama.cpp").plan(architecture, asked).lines:
        sums["recurrent" if line.format == "fp32" and line.fixed else "attention"] += line.bytes
    return sums


def _types_of(name: str) -> dict[str, Any]:
    return {"cache_type_k": name, "cache_type_v": name}


#: What usually differs between the log and what was asked.
_SUSPECTS: Suspects = (
    ("windows were not honoured (--swa-full)", {"swa_full": True}),
    ("one slot only (-np 1)", {"parallel": 1}),
    ("four slots in one stream (the server's default)", {"parallel": 4, "kv_unified": True}),
    ("four separate slots", {"parallel": 4, "kv_unified": False}),
    ("a micro batch of 2,048 (-ub 2048)", {"ubatch_size": 2048}),
    ("a micro batch of 1,024 (-ub 1024)", {"ubatch_size": 1024}),
    ("a micro batch of 256 (-ub 256)", {"ubatch_size": 256}),
    ("a micro batch of 128 (-ub 128)", {"ubatch_size": 128}),
    ("the cache was kept in f16", _types_of("f16")),
    ("the cache was kept in q8_0", _types_of("q8_0")),
    ("the cache was kept in q4_0", _types_of("q4_0")),
    ("the draft context of multi-token prediction", {"mtp_context": True}),
    *((f"rollback rows for {count} draft token{'s' if count > 1 else ''}", {"n_rs_seq": count}) for count in range(1, 9)),
    *(
        (f"rollback rows for {count} draft token{'s' if count > 1 else ''} in each of four slots", {"n_rs_seq": count, "parallel": 4})
        for count in range(1, 9)
    ),
)


RECOGNISER = LlamaCppLog
