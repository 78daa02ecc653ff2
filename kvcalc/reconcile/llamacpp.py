"""llama.cpp's start-up log, by itself or under Ollama.

llama_context: n_ctx = 32768 · n_seq_max = 4 · kv_unified = true · n_ubatch = 512
llama_kv_cache: size = 3072.00 MiB (131072 cells, 12 layers, 1/1 seqs), K (f16): 1536.00 MiB, V (f16): 1536.00 MiB
llama_memory_recurrent: size = 301.50 MiB (4 cells, 48 layers, 4 seqs), R (f32): 13.50 MiB, S (f32): 288.00 MiB
llama_model_loader: - kv  10:  llama.block_count u32 = 32          the model itself, unless an array is shortened
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from kvcalc.engines import get_engine
from kvcalc.errors import KvcalcError
from kvcalc.reconcile.base import Printed, Recogniser, Row, printed
from kvcalc.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcalc.architecture import Architecture
    from kvcalc.plan import Plan

_SIZE = re.compile(
    r"llama_(kv_cache\w*|memory_recurrent|memory_hybrid\w*): +size = +([0-9.]+) (MiB) \( *([0-9]+) cells, +([0-9]+) layers,"
    r" +([0-9]+)(?:/ *([0-9]+))? seqs\)(?:, K \((\w+)\): +[0-9.]+ MiB)?(?:, V \((\w+)\))?"
)
_OLD_TOTAL = re.compile(r"KV self size +=? *([0-9.]+) (MiB|MB), K \((\w+)\): +[0-9.]+ M(?:iB|B), V \((\w+)\)")
_SETTING = re.compile(r"llama_context: +(n_ctx|n_batch|n_ubatch|n_seq_max|kv_unified|flash_attn) += +(\w+)")
_OLD_SETTING = re.compile(r"llama_new_context_with_model: (n_ctx|n_batch|n_ubatch|flash_attn) += +(\w+)")
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


class LlamaCppLog(Recogniser):
    """llama.cpp, llama-server and what Ollama starts."""

    engine: ClassVar[str] = "llama.cpp"
    marks: ClassVar[tuple[bytes, ...]] = (
        b"llama_kv_cache",
        b"llama_memory_",
        b"llama_context:",
        b"llama_new_context",
        b"KV self size",
        b"- kv ",
    )

    def __init__(self) -> None:
        super().__init__()
        self._metadata: dict[str, Any] = {}
        self._shortened = False

    @property
    def metadata(self) -> dict[str, Any]:
        """The GGUF metadata, empty if an array of it was shortened."""
        return {} if self._shortened or "general.architecture" not in self._metadata else self._metadata

    def feed(self, line: str, number: int) -> None:
        """Sizes, settings and metadata of one line."""
        size, old = _SIZE.search(line), _OLD_TOTAL.search(line)
        if size:
            name = "recurrent" if "recurrent" in size[1] else "attention"
            self.seen.add(name, printed(size[2], number, size[3]))
            self._types(size[8], size[9])
        elif old:
            self.seen.add("attention", printed(old[1], number, old[2]))
            self._types(old[3], old[4])
        setting = _SETTING.search(line) or _OLD_SETTING.search(line)
        if setting:
            self._setting(setting[1], setting[2])
        entry = _METADATA.search(line)
        if entry and len(self._metadata) < _LONGEST_METADATA:
            self._entry(entry[1], entry[2], entry[3].strip())

    def _types(self, key: str | None, value: str | None) -> None:
        for name, found in (("cache_type_k", key), ("cache_type_v", value)):
            if found:
                self.seen.settings.setdefault(name, found.lower())

    def _setting(self, name: str, text: str) -> None:
        if name == "flash_attn":
            value: Any = _FLASH.get(text.lower(), "auto")
        elif name == "kv_unified":
            value = text.lower() == "true"
        else:
            value = int(text) if text.isdigit() else None
        if value is not None:
            self.seen.settings[_NAMES[name]] = value

    def _entry(self, key: str, kind: str, text: str) -> None:
        if key.startswith("tokenizer."):
            return
        if kind.startswith("arr"):
            self._array(key, kind, text)
        elif kind == "str":
            self._metadata[key] = text
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

    def workload(self) -> Workload:
        """The question that the log answers."""
        settings = dict(self.seen.settings)
        settings.setdefault("parallel", 1)
        settings.setdefault("kv_unified", settings["parallel"] == 1)
        # The log prints the context in force for all slots; a unified cache prints the same for each of them.
        return Workload(context=settings.get("ctx_size"), engine_args=settings)

    def rows(self, architecture: Architecture) -> list[Row]:
        """The attention caches together, the recurrent state, and both."""
        plan = get_engine("llama.cpp").plan(architecture, self.workload())
        return list(self._rows(architecture, plan))

    def _rows(self, architecture: Architecture, plan: Plan) -> Iterator[Row]:
        sums = {"recurrent": 0, "attention": 0}
        for line in plan.lines:
            sums["recurrent" if line.format == "fp32" and line.fixed else "attention"] += line.bytes
        for name, label in (("attention", "KV cache"), ("recurrent", "recurrent state")):
            figures = self.seen.figures.get(name, [])
            if not figures:
                continue
            total = Printed(sum((figure.value for figure in figures), Fraction(0)), sum((figure.half for figure in figures), Fraction(0)))
            expected = Fraction(sums[name])
            within = total.holds(expected, expected)
            reason = "" if within else self._reason(architecture, name, total)
            yield Row(label, "bytes", figures[0].line, total.value, expected, expected, within, reason)

    def _reason(self, architecture: Architecture, name: str, total: Printed) -> str:
        for text, more in _SUSPECTS:
            changed = self.workload()
            args = {**changed.engine_args, **more}
            try:
                plan = get_engine("llama.cpp").plan(architecture, Workload(context=changed.context, engine_args=args))
            except KvcalcError:
                continue
            size = sum(line.bytes for line in plan.lines if (line.format == "fp32" and line.fixed) == (name == "recurrent"))
            if total.holds(size, size):
                return text
        return "none of the usual reasons explains it: compare model, settings and version"


#: What usually differs between the log and what was asked.
_SUSPECTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("windows were not honoured (--swa-full)", {"swa_full": True}),
    ("one slot only (-np 1)", {"parallel": 1}),
    ("four slots in one stream (the server's default)", {"parallel": 4, "kv_unified": True}),
    ("four separate slots", {"parallel": 4, "kv_unified": False}),
    ("a micro batch of 2,048 (-ub 2048)", {"ubatch_size": 2048}),
    ("a micro batch of 1,024 (-ub 1024)", {"ubatch_size": 1024}),
    ("the cache was kept in f16", {"cache_type_k": "f16", "cache_type_v": "f16"}),
    ("the cache was kept in q8_0", {"cache_type_k": "q8_0", "cache_type_v": "q8_0"}),
    ("rollback rows for three draft tokens", {"n_rs_seq": 3}),
)


class OllamaLog(LlamaCppLog):
    """Ollama's own log: llama.cpp's lines under a server of that name."""

    engine: ClassVar[str] = "ollama"
    marks: ClassVar[tuple[bytes, ...]] = (*LlamaCppLog.marks, b"OLLAMA_", b"source=server.go", b"source=sched.go", b"source=routes.go")

    def __init__(self) -> None:
        super().__init__()
        self._ollama = False

    @property
    def recognised(self) -> bool:
        """Ollama's own lines stand beside the figures."""
        return self._ollama and super().recognised

    def feed(self, line: str, number: int) -> None:
        """Note the server, then read llama.cpp's lines."""
        self._ollama = (
            self._ollama or "OLLAMA_" in line or "source=server.go" in line or "source=sched.go" in line or "source=routes.go" in line
        )
        super().feed(line, number)
