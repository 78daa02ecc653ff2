"""What a log complains of, and what would end it.

vLLM        To serve at least one request with the model's max seq len (131072), (16.0 GiB KV cache is needed, which is larger than
            the available KV cache memory (10.0 GiB)
vLLM        No available memory for the cache blocks
Ollama      msg="truncating input prompt" limit=4096 prompt=10211 keep=4 new=4096        the limit is num_ctx, or half of it and 2
llama.cpp   request (10211 tokens) exceeds the available context size (4096 tokens)

A refusal is the question of `fit` at the memory that was left; a prompt that is too long asks for the bytes of a longer context.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from kvcalc.core.errors import KvcalcError
from kvcalc.core.units import GIB, human, show_bytes, show_tokens
from kvcalc.core.workload import Workload
from kvcalc.engines import get_engine
from kvcalc.engines.base.logs import printed
from kvcalc.engines.base.server_flags import SERVER_FLAGS
from kvcalc.engines.vllm.startlog import VllmLog
from kvcalc.hardware import parse_gpu
from kvcalc.questions.request import Request

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kvcalc.core.architecture import Architecture
    from kvcalc.engines.base.logs import Printed, Recogniser

#: Words of which one stands in every line of interest.
MARKS = (
    b"KV cache is needed",
    b"No available memory for the cache blocks",
    b"KV cache memory: -",
    b"truncating input prompt",
    b"available context size",
    b"max seq",
    b"GiB KV",
    b"available KV",
    b" GiB)",
)

_NOTHING_LEFT = re.compile(r"No available memory for the cache blocks")
_BELOW_NOTHING = re.compile(r"Available KV cache memory: -([0-9]{1,6}(?:\.[0-9]{1,6})?) GiB")
_NEEDED = re.compile(r"KV cache is needed, which is larger than")
#: The same as a whole, for pastes that a terminal has wrapped: blanks may be ends of lines.
_WHOLE = re.compile(
    r"max seq len \(([0-9]{1,12})\), \(?[0-9.]{1,12} GiB KV cache is needed, which is larger than the available KV cache memory \(([0-9.]{1,12}) (GiB)\)"
)
_CUT = re.compile(r"truncating input prompt\"? +limit=([0-9]{1,12}) prompt=([0-9]{1,12})")
_TOO_LONG = re.compile(r"request \(([0-9]{1,12}) tokens\) exceeds the available context size \(([0-9]{1,12}) tokens\)")
#: A GPU memory that people know, for the size of a step of gpu_memory_utilization.
_EXAMPLE_CARD = 80 * GIB
#: How much of the lines before is kept, to read what was wrapped.
_LONGEST_PASTE = 1000


@dataclass(frozen=True, slots=True)
class Way:
    """One change, as the engine's user writes it, and what it means."""

    flag: str
    text: str


@dataclass(frozen=True, slots=True)
class Trouble:
    """A complaint of the log.

    kind      "refused" (the server did not start) · "truncated" (a prompt was cut, or was refused for its length)
    needed    bytes a device, or tokens of the longest prompt; `available` what there was of them
    ways      changes that end it, each by itself
    """

    kind: str
    line: int
    text: str
    needed: int
    available: int
    ways: tuple[Way, ...]

    def to_dict(self) -> dict[str, Any]:
        """The `trouble` object of `kvcalc.reconcile/1`."""
        return {
            "kind": self.kind,
            "line": self.line,
            "text": self.text,
            "unit": "bytes" if self.kind == "refused" else "tokens",
            "needed": self.needed,
            "available": self.available,
            "ways": [{"flag": way.flag, "text": way.text} for way in self.ways],
        }


@dataclass(slots=True)
class Complaints:
    """Reads the lines of `MARKS`, whatever the engine."""

    refused: int = 0
    nothing: bool = False
    below: Fraction = Fraction(0)
    prompt: int = 0
    limit: int = 0
    cut: int = 0
    engine: str = ""
    context: int | None = None
    left: Printed | None = None
    _last: int = 0
    _text: str = ""

    def feed(self, line: str, number: int) -> None:
        """The last refusal, and the longest prompt that was cut."""
        self._text = " ".join((self._text[-_LONGEST_PASTE:] if number == self._last + 1 else "", *line.split()))
        self._last = number
        whole = _WHOLE.search(self._text)
        if whole:
            with suppress(ValueError):
                self.left = printed(whole[2].rstrip("."), number, whole[3], digits=2)
            self.context, self.refused, self.engine, self._text = int(whole[1]), number, self.engine or "vllm", ""
        below = _BELOW_NOTHING.search(line)
        if below:
            self.below = max(self.below, Fraction(below[1]) * GIB)
        self.nothing = self.nothing or bool(_NOTHING_LEFT.search(line))
        if _NEEDED.search(line) or _NOTHING_LEFT.search(line):
            self.refused, self.engine = number, self.engine or "vllm"
        cut, long = _CUT.search(line), _TOO_LONG.search(line)
        found = (int(cut[2]), int(cut[1])) if cut else (int(long[1]), int(long[2])) if long else None
        if found and found[0] > self.prompt:
            (self.prompt, self.limit), self.cut = found, number
            self.engine = self.engine or ("ollama" if cut else "llama.cpp")

    def answer(self, found: Recogniser, architecture: Architecture) -> Trouble | None:
        """What ends the gravest complaint: a server that did not start (nor later in the log), else a prompt that was cut."""
        started = max((figure.line for name in ("tokens", "blocks") for figure in found.seen.figures.get(name, ())), default=0)
        if self.refused > started and isinstance(found, VllmLog):
            return self._refusal(found, architecture)
        return self._truncation(found, architecture) if self.cut and found.engine in ("ollama", "llama.cpp") else None

    def _refusal(self, found: VllmLog, architecture: Architecture) -> Trouble:
        from kvcalc.questions.fit import fit

        memory = self.left or found.seen.last("refused") or found.seen.smallest("available")
        sure = max(0, int(memory.low)) if memory else 0  # what prints like this, and not less
        left = int(memory.value) if sure and memory else 0
        asked = found.workload()
        if self.context is not None:
            asked = replace(asked, context=self.context)
        answer = fit(Request(architecture, "vllm", replace(asked, kv_memory=sure)))
        needed = answer.needed or answer.plan.per_device
        missing = needed - sure + int(self.below)
        what = f"vLLM did not start: one sequence of {show_tokens(answer.plan.context)} tokens needs {show_bytes(needed)} for the cache on each device"
        if memory is None and not self.nothing:
            way = Way(SERVER_FLAGS["vllm"]["utilization"], f"higher, until {human(needed)} are left for the cache")
            return Trouble("refused", self.refused, f"{what}, more than was left", needed, 0, (way,))
        had = f"{show_bytes(left)} were left" if left else "nothing was left beside weights and activations"
        flags = SERVER_FLAGS["vllm"]
        ways = [
            Way(flags["utilization"], _higher(missing, asked.gpu)),
            *(Way(f"{flags[way.setting]} {way.value}", way.text) for way in answer.remedies if way.setting in flags),
        ]
        if not left:
            ways.append(Way("a smaller checkpoint", "or more GPUs: weights and activations alone take the whole share"))
        return Trouble("refused", self.refused, f"{what}, and {had}", needed, left, tuple(ways))

    def _truncation(self, found: Recogniser, architecture: Architecture) -> Trouble:
        text = f"a prompt of {self.prompt:,} tokens met a limit of {self.limit:,}"
        had = _slot(found.seen.settings)
        if self.limit < had <= self.prompt:
            text += f", which is kept of a prompt that is longer than the context of {had:,}"
        longest = architecture.max_context
        context = 1 << self.prompt.bit_length()  # the power of two above it, which leaves room for a reply
        if longest is not None:
            context = min(context, longest)
        if context <= self.prompt:
            text += f", and {architecture.id} was trained for {longest:,}: shorten the prompt"
            return Trouble("truncated", self.cut, text, self.prompt, self.limit, ())
        return Trouble(
            "truncated", self.cut, text, self.prompt, self.limit, tuple(_longer(found, architecture, context, context - self.prompt))
        )


def _higher(missing: int, gpu: str | None) -> str:
    """By how much the share of a card has to grow, in hundredths; of a card that is not known, as arithmetic."""
    card = _EXAMPLE_CARD if gpu is None else parse_gpu(gpu)[0].memory
    step = f"{-(-missing * 100 // card) / 100:g}"
    if gpu is None:
        return f"higher by {human(missing)} / the card's memory, {step} on 80 GiB, if nothing else uses it"
    return f"higher by {step}: {human(missing)} of {human(card)}, if nothing else uses them"


def _slot(settings: Mapping[str, Any]) -> int:
    """Tokens of a slot in the server that ran; 0 where the log does not say it."""
    cells = int(settings.get("ctx_size", 0))
    return cells if settings.get("kv_unified") else cells // max(int(settings.get("parallel", 1)), 1)


def _longer(found: Recogniser, architecture: Architecture, context: int, room: int) -> Iterator[Way]:
    """The same server with a longer context, and what its cache takes."""
    settings = found.seen.settings
    slots = int(settings.get("parallel", 1))
    types = {key: settings[key] for key in ("cache_type_k", "cache_type_v") if key in settings}
    total = context if settings.get("kv_unified") else context * slots
    flag = f"OLLAMA_CONTEXT_LENGTH={context}" if found.engine == "ollama" else f"-c {total}"
    args: dict[str, Any] = types | {"parallel": slots, "ctx_size": total, "kv_unified": bool(settings.get("kv_unified"))}
    try:
        size = get_engine("llama.cpp").plan(architecture, Workload(context=context, sequences=slots, engine_args=args)).total
    except KvcalcError:
        return
    where = ", or num_ctx in the request or the Modelfile" if found.engine == "ollama" else ""
    yield Way(
        flag,
        f"leaves {room:,} tokens for the reply{where}: the cache takes {show_bytes(size)}" + (f" for {slots:,} slots" if slots > 1 else ""),
    )
