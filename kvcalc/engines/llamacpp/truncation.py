"""The words of llama.cpp, and of the runner that Ollama starts, for a prompt that is too long.

msg="truncating input prompt" limit=4096 prompt=10211 keep=4 new=4096        the limit is num_ctx, or half of it and 2
request (10211 tokens) exceeds the available context size (4096 tokens)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvcalc.core.workload import Workload
from kvcalc.engines import get_engine

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvcalc.core.architecture import Architecture

#: Words of which one stands in every line of interest.
MARKS = (b"truncating input prompt", b"available context size")
_CUT = re.compile(r"truncating input prompt\"? +limit=([0-9]{1,12}) prompt=([0-9]{1,12})")
_TOO_LONG = re.compile(r"request \(([0-9]{1,12}) tokens\) exceeds the available context size \(([0-9]{1,12}) tokens\)")


@dataclass(slots=True)
class TruncationReader:
    """The longest prompt that was cut or refused; `cut_first`: a runner cut the first one, where llama.cpp refuses."""

    line: int = 0
    prompt: int = 0
    limit: int = 0
    cut_first: bool = False

    def hear(self, line: str, number: int) -> None:
        """Take what the line says of a prompt."""
        cut, long = _CUT.search(line), _TOO_LONG.search(line)
        found = (int(cut[2]), int(cut[1])) if cut else (int(long[1]), int(long[2])) if long else None
        if found and found[0] > self.prompt:
            self.cut_first = self.cut_first or (cut is not None and not self.line)
            (self.prompt, self.limit), self.line = found, number


def slot(settings: Mapping[str, Any]) -> int:
    """Tokens of a slot in the server that ran; 0 where the log does not say it."""
    cells = int(settings.get("ctx_size", 0))
    return cells if settings.get("kv_unified") else cells // max(int(settings.get("parallel", 1)), 1)


def longer(architecture: Architecture, settings: Mapping[str, Any], context: int) -> tuple[int, int, int]:
    """The same server with `context` tokens a slot: its --ctx-size, the bytes of its cache, its slots. Raises what planning raises."""
    slots, unified = int(settings.get("parallel", 1)), bool(settings.get("kv_unified"))
    total = context if unified else context * slots
    types = {key: settings[key] for key in ("cache_type_k", "cache_type_v") if key in settings}
    args = types | {"parallel": slots, "ctx_size": total, "kv_unified": unified}
    plan = get_engine("llama.cpp").plan(architecture, Workload(context=context, sequences=slots, engine_args=args))
    return total, plan.total, slots
