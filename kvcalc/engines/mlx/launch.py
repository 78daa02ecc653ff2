"""`mlx_lm.server`, `mlx_lm.generate`, `mlx_lm.chat` (mlx-lm 0.32.2: server.py, generate.py, chat.py).

The server has no `--max-kv-size`, and `--max-tokens` there only ends an answer; `generate` counts the last `--max-tokens` of the context
as generated.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from kvcalc.core.errors import UsageError
from kvcalc.engines.base.flags import IDLE, Syntax, apply, doubted, go_through, idle_flags, keeps, sets, settings, switches, values
from kvcalc.engines.base.reading import Reading, model, whole

if TYPE_CHECKING:
    from kvcalc.engines.base.flags import Flag
    from kvcalc.engines.base.launcher import Found

#: `utils._parse_size`: decimal suffixes.
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{0,9})?)\s*(|M|G|MB|GB)", re.ASCII | re.IGNORECASE)
_UNITS = {"": 1, "M": 10**6, "G": 10**9, "MB": 10**6, "GB": 10**9}
#: Entries that the server keeps unless told otherwise, and requests that it decodes together.
_ENTRIES, _TOGETHER = 10, 32
_CONCURRENCY = "--decode-concurrency"


def _size(flag: str, text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{flag}: its value is not a size", "bytes, or a number with M, MB, G or GB, such as 26G")
    return int(Decimal(match[1]) * _UNITS[match[2].upper()])


def _concurrency(reading: Reading, flag: str, value: Any) -> None:
    reading.notes.append(f"up to {whole(flag, value):,} requests run together: say with --sequences how many are meant")


_MODEL = values(keeps("model", model), "--model")
_PIPELINE = switches(doubted("spreads the layers over the machines of mlx.launch: say with --pp how many"), "--pipeline")
_SETTINGS = settings("mlx")
_DRAFT = values(doubted("loads a second model with a cache of its own, which is not counted, and ends batching"), "--draft-model")
_FLAGS: dict[str, Flag] = {**idle_flags(__file__), **_MODEL, **_PIPELINE, **_DRAFT}


def _only(*names: str) -> dict[str, Flag]:
    return {name: _SETTINGS[name] for name in names}


_CACHE = ("--prefill-step-size", "--kv-bits", "--kv-group-size", "--quantized-kv-start")
#: Command → its flags.
_SYNTAX = {
    "server": Syntax(
        {
            **_FLAGS,
            **_only(*_CACHE, "--prompt-cache-size"),
            **values(sets("prompt_cache_bytes", _size), "--prompt-cache-bytes"),
            **values(_concurrency, _CONCURRENCY),
            **values(IDLE, "--max-tokens"),
        }
    ),
    "generate": Syntax(
        {
            **_FLAGS,
            **_only(*_CACHE, "--max-kv-size"),
            **values(_SETTINGS["--max-tokens"].does, "--max-tokens/-m"),
            **values(doubted("starts from a cache of its own file, whose tokens come before the prompt"), "--prompt-cache-file"),
            **values(doubted("adds the tokens of an image to the prompt"), "--image"),
        }
    ),
    "chat": Syntax(
        {
            **_FLAGS,
            **_only("--prefill-step-size", "--max-kv-size"),
            **values(IDLE, "--max-tokens/-m"),
        }
    ),
}
#: Settings of mlx-lm that one command does not have → which do.
_FOREIGN = {
    "server": {"--max-kv-size": "mlx_lm.generate and mlx_lm.chat"},
    "generate": {"--prompt-cache-size": "mlx_lm.server", "--prompt-cache-bytes": "mlx_lm.server"},
    "chat": {"--kv-bits": "mlx_lm.generate and mlx_lm.server", "--kv-group-size": "mlx_lm.generate and mlx_lm.server"},
}


def read(found: Found) -> Reading:
    """What the command is told. Raises UsageError for what it would refuse."""
    given = go_through(found.words, _SYNTAX[found.program])
    for flag in given.unknown:
        home = _FOREIGN[found.program].get(flag)
        if home:
            raise UsageError(f"mlx_lm.{found.program} has no {flag} and does not start with it", f"{home} have it; leave it out here")
    reading = Reading("mlx")
    apply(given, reading)
    if found.program == "server":
        _say(reading)
    return reading


def _say(reading: Reading) -> None:
    """What the server keeps beside the running requests, where the command does not say."""
    if "prompt_cache_size" not in reading.settings:
        reading.notes.append(
            f"beside the running requests the server keeps up to {_ENTRIES} finished prompts (--prompt-cache-size), which are not counted: "
            f"-E prompt_cache_size={_ENTRIES} of kvcalc estimate counts them"
        )
    if "kv_bits" in reading.settings:
        reading.notes.append("--kv-bits ends batching: requests run one at a time")
    elif not any(_TOGETHER_NOTE in note for note in reading.notes):
        reading.notes.append(f"up to {_TOGETHER} requests run together ({_CONCURRENCY}): say with --sequences how many are meant")


_TOGETHER_NOTE = "requests run together"
