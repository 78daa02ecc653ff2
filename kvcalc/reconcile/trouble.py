"""What a log complains of, and what would end it.

A refusal is the question of `fit` at the memory that was left; a prompt that is too long asks for the bytes of a longer context.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from kvcalc.core.errors import KvcalcError
from kvcalc.core.units import GIB, human, show_bytes, show_tokens
from kvcalc.engines import get_engine
from kvcalc.engines.base.trouble import Refusal, Truncation
from kvcalc.hardware import parse_gpu
from kvcalc.questions.documents.reconcile import Trouble, Way
from kvcalc.questions.request import Request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcalc.core.architecture import Architecture
    from kvcalc.engines.base.engine import Engine
    from kvcalc.engines.base.logs import Recogniser

#: A GPU memory that people know, for the size of a step of gpu_memory_utilization.
_EXAMPLE_CARD = 80 * GIB


def trouble_of(found: Recogniser, architecture: Architecture) -> Trouble | None:
    """What ends the gravest complaint: a server that did not start, else a prompt that was cut. Raises what planning raises."""
    complaint = found.complaint()
    match complaint:
        case None:
            return None
        case Refusal():
            return _refusal(complaint, get_engine(found.engine), architecture)
        case Truncation():
            return _truncation(complaint, found, architecture)
        case _:
            assert_never(complaint)


def _refusal(complaint: Refusal, engine: Engine, architecture: Architecture) -> Trouble:
    from kvcalc.questions.fit import fit

    memory = complaint.left
    sure = max(0, int(memory.low)) if memory else 0  # what prints like this, and not less
    left = int(memory.value) if sure and memory else 0
    answer = fit(Request(architecture, engine.name, replace(complaint.asked, kv_memory=sure)))
    needed = answer.plan.per_device if answer.needed is None else answer.needed
    missing = needed - sure + int(complaint.below)
    what = (
        f"{engine.title or engine.name} did not start: one sequence of {show_tokens(answer.plan.context)} tokens"
        f" needs {show_bytes(needed)} for the cache on each device"
    )
    flags = engine.server_flags
    share = flags.get("utilization")
    if memory is None and not complaint.nothing:
        ways = [Way(share, f"higher, until {human(needed)} are left for the cache")] if share else []
        return Trouble("refused", complaint.line, f"{what}, more than was left", "bytes", needed, 0, tuple(ways))
    had = f"{show_bytes(left)} were left" if left else "nothing was left beside weights and activations"
    ways = [Way(share, _higher(missing, complaint.asked.gpu))] if share else []
    ways += [Way(f"{flags[way.setting]} {way.value}", way.text) for way in answer.remedies if way.setting in flags]
    if not left:
        ways.append(Way("a smaller checkpoint", "or more GPUs: weights and activations alone take the whole share"))
    return Trouble("refused", complaint.line, f"{what}, and {had}", "bytes", needed, left, tuple(ways))


def _truncation(complaint: Truncation, found: Recogniser, architecture: Architecture) -> Trouble:
    prompt, limit = complaint.prompt, complaint.limit
    text = f"a prompt of {prompt:,} tokens met a limit of {limit:,}"
    if limit < complaint.held <= prompt:
        text += f", which is kept of a prompt that is longer than the context of {complaint.held:,}"
    longest = architecture.max_context
    context = 1 << prompt.bit_length()  # the power of two above it, which leaves room for a reply
    if longest is not None:
        context = min(context, longest)
    if context <= prompt:
        text += f", and {architecture.id} was trained for {longest:,}: shorten the prompt"
        return Trouble("truncated", complaint.line, text, "tokens", prompt, limit, ())
    return Trouble(
        "truncated", complaint.line, text, "tokens", prompt, limit, tuple(_longer(found, architecture, context, context - prompt))
    )


def _higher(missing: int, gpu: str | None) -> str:
    """By how much the share of a card has to grow, in hundredths; of a card that is not known, as arithmetic."""
    card = _EXAMPLE_CARD if gpu is None else parse_gpu(gpu)[0].memory
    step = f"{-(-missing * 100 // card) / 100:g}"
    if gpu is None:
        return f"higher by {human(missing)} / the card's memory, {step} on 80 GiB, if nothing else uses it"
    return f"higher by {step}: {human(missing)} of {human(card)}, if nothing else uses them"


def _longer(found: Recogniser, architecture: Architecture, context: int, room: int) -> Iterator[Way]:
    """The same server with a longer context, and what its cache takes."""
    try:
        server = found.longer(architecture, context)
    except KvcalcError:
        return
    if server is not None:
        many = f" for {server.sequences:,} slots" if server.sequences > 1 else ""
        yield Way(server.flag, f"leaves {room:,} tokens for the reply{server.elsewhere}: the cache takes {show_bytes(server.bytes)}{many}")
