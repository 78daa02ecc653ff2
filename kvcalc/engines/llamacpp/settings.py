"""The settings of llama.cpp that change a byte, under the names of its long flags.

What its programs do when a flag is not given differs (common/common.h, tools/server/server.cpp, llama-context.cpp
`llama_context_default_params`):

    usage      server, cli    window layers hold their window     swa_full off
    usage      library        window layers hold everything       swa_full on (Python bindings that leave it unset)
    parallel   -1             server: 4 slots in one pool, as without -np; cli and library: 1 slot
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvcalc.core.errors import EngineRejectsError, UsageError
from kvcalc.core.formats import GGML_TYPES, KvFormat, get_format, get_kv_format
from kvcalc.core.units import clean
from kvcalc.engines.base.engine import Setting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvcalc.core.formats import Format

SETTINGS = (
    Setting(
        "ctx_size",
        "int",
        None,
        "cells of all slots together; 0 = the trained context; default context x slots, or context if unified",
        least=0,
    ),
    Setting("parallel", "int", None, "slots (-np); default one a sequence, -1 = what the program does without the flag", least=-1),
    Setting("kv_unified", "bool", None, "one pool for all slots instead of one part each"),
    Setting("cache_type_k", "str", None, "type of K (-ctk); default f16, or what --kv-dtype says"),
    Setting("cache_type_v", "str", None, "type of V (-ctv); default f16, or what --kv-dtype says"),
    Setting("batch_size", "int", 2048, "logical batch (-b)", least=1),
    Setting("ubatch_size", "int", 512, "physical batch (-ub), which window caches hold beside the window; 0 = batch_size", least=0),
    Setting("swa_full", "bool", None, "window layers hold the whole context"),
    Setting("flash_attn", "str", "auto", "flash attention (-fa)", ("auto", "on", "off")),
    Setting("n_rs_seq", "int", 0, "rows of recurrent state that speculation can roll back to", least=0),
    Setting("mtp_context", "bool", default=False, about="the draft context of --spec-type draft-mtp instead of the model's own"),
    Setting("usage", "str", "server", "whose defaults hold", ("server", "cli", "library")),
    Setting(
        "split_mode",
        "str",
        "auto",
        "how several GPUs share (-sm); auto = layer, or tensor under --tp",
        ("auto", "none", "layer", "row", "tensor"),
    ),
    Setting("tensor_split", "list", None, "proportions of the GPUs (-ts); default equal"),
    Setting("n_gpu_layers", "int", None, "layers on the GPUs (-ngl), the output layer among them; default all", least=0),
    Setting("no_kv_offload", "bool", default=False, about="the cache stays in host memory (-nkvo)"),
)

#: LLAMA_MAX_SEQ (llama.h).
MOST_SLOTS = 256
#: llama-server without -np (tools/server/server.cpp).
AUTO_SLOTS = 4
#: What ggml calls the formats.
_GGML_NAMES = {"fp32": "f32", "fp16": "f16"}


@dataclass(frozen=True, slots=True)
class Types:
    """The types of K and V."""

    key: Format
    value: Format

    @property
    def name(self) -> str:
        """In kvcalc's words: `fp16`, `q8_0/q4_0`."""
        return KvFormat(self.key, self.value).name


def ggml_name(form: Format) -> str:
    """The type as llama.cpp's flags call it."""
    return _GGML_NAMES.get(form.name, form.name)


def is_quantized(form: Format) -> bool:
    """Stored in blocks."""
    return form.block > 1


def read_types(kv_dtype: str, args: Mapping[str, Any]) -> Types:
    """K and V from `--kv-dtype` or the two flags. Raises UsageError where they contradict, EngineRejectsError for other formats."""
    common = None if kv_dtype == "auto" else get_kv_format(kv_dtype)
    found: list[Format] = []
    for setting, asked in (("cache_type_k", common.key if common else None), ("cache_type_v", common.value if common else None)):
        own = get_format(args[setting], setting) if args[setting] is not None else None
        if own is not None and asked is not None and own is not asked:
            raise UsageError(f"{setting} is {own.name}, and --kv-dtype says {asked.name}", "give one of the two")
        form = own or asked or get_format("fp16")
        if form.name not in GGML_TYPES:
            raise EngineRejectsError(
                f"llama.cpp has no cache type {clean(form.name, 40)}",
                "it has " + ", ".join(_GGML_NAMES.get(name, name) for name in GGML_TYPES),
            )
        found.append(form)
    return Types(*found)


@dataclass(frozen=True, slots=True)
class Slots:
    """How many sequences the context holds, and whether they share one pool."""

    count: int
    unified: bool


def read_slots(sequences: int, args: Mapping[str, Any]) -> Slots:
    """The slots in force. Raises EngineRejectsError for more than llama.cpp has."""
    count, unified = args["parallel"], bool(args["kv_unified"])
    if count == -1:
        auto = args["usage"] == "server"
        count, unified = (AUTO_SLOTS, True) if auto else (1, unified)
    elif count is None:
        count = sequences
    count = max(count, 1)
    if count > MOST_SLOTS:
        raise EngineRejectsError(f"llama.cpp holds at most {MOST_SLOTS} sequences, and {count:,} were asked", "run several servers")
    return Slots(count, unified)


def holds_everything(args: Mapping[str, Any]) -> bool:
    """Whether window layers hold the whole context: as told, else by the library's own default."""
    told: bool | None = args["swa_full"]
    return args["usage"] == "library" if told is None else told
