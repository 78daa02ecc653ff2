"""The flags of `toy-serve MODEL`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.engines.base.flags import IDLE, Syntax, apply, asks, go_through, refused, settings, switches, values
from kvcalc.engines.base.reading import Reading, name, whole
from kvcalc_toy.settings import SERVER_FLAGS

if TYPE_CHECKING:
    from kvcalc.engines.base.launcher import Found

_TRANSLATED = {
    **values(asks("context", whole), "--context"),
    **values(asks("kv_dtype", name), "--cache-type"),
    **values(asks("tensor_parallel", whole), "--ranks"),
    **switches(refused("keeps two caches"), "--twice"),
    **values(IDLE, "--port"),
}


def read(found: Found) -> Reading:
    syntax = Syntax({**settings("toy"), **_TRANSLATED})
    reading = Reading("toy", words={setting: f"{flag} {{}}" for setting, flag in SERVER_FLAGS.items()})
    apply(go_through(found.words, syntax, positionals=1), reading)
    return reading
