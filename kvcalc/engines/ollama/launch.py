"""`ollama serve` and `ollama run MODEL`, as of August 2026 (server/routes.go, envconfig/config.go).

Ollama is told what decides bytes by variables before the command, not by flags; num_ctx of a request or of a Modelfile is not here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.core.errors import UsageError
from kvcalc.engines.base.flags import IDLE, Syntax, apply, go_through, switches, values
from kvcalc.engines.base.reading import Reading, name, whole

if TYPE_CHECKING:
    from kvcalc.engines.base.launcher import Found

_TRUE, _FALSE = ("1", "t", "true"), ("0", "f", "false")
_SYNTAX = Syntax(
    {
        **values(IDLE, "--keepalive --format --dimensions --think"),
        **switches(IDLE, "--verbose --insecure --nowordwrap --hidethinking --truncate --experimental --experimental-yolo --help/-h"),
    }
)
#: Variables that change no byte of the cache of one model.
_IDLE = frozenset(
    ("HOST", "ORIGINS", "MODELS", "KEEP_ALIVE", "DEBUG", "MAX_QUEUE", "MAX_LOADED_MODELS", "NOPRUNE", "NOHISTORY", "LOAD_TIMEOUT",
     "TMPDIR", "AUTH", "REMOTES", "NO_CLOUD")
)  # fmt: skip
#: Words of a prompt behind the model.
_MOST = 4096
_PREFIX = "OLLAMA_"


#: Remedies of `fit` in the words of the command.
_WORDS = {
    "context": "OLLAMA_CONTEXT_LENGTH={}",
    "sequences": "OLLAMA_NUM_PARALLEL={}",
    "kv_dtype": "OLLAMA_KV_CACHE_TYPE={}",
}


def read(found: Found) -> Reading:
    """What Ollama is told. Raises UsageError for a value that cannot be read."""
    reading = Reading("ollama", words=_WORDS)
    given = go_through(found.words, _SYNTAX, positionals=_MOST if found.program == "run" else 0)
    apply(given, reading)
    for variable, value in found.environment.items():
        if variable.startswith(_PREFIX):
            _variable(reading, variable, value)
    if "context" not in reading.keys:
        reading.notes.append("num_ctx of a request or a Modelfile is not in the command; OLLAMA_CONTEXT_LENGTH before it says one")
    return reading


def _variable(reading: Reading, variable: str, value: str) -> None:
    word = variable.removeprefix(_PREFIX)
    if word == "CONTEXT_LENGTH":
        length = whole(variable, value, least=0)
        if length:
            reading.keys["context"] = length
            reading.options["context"] = variable
    elif word == "NUM_PARALLEL":
        count = whole(variable, value, least=0)
        if count:
            reading.keys["sequences"] = count
            reading.options["sequences"] = variable
    elif word == "KV_CACHE_TYPE":
        if value:
            reading.keys["kv_dtype"] = name(variable, value)
    elif word == "FLASH_ATTENTION":
        _flash(reading, variable, value)
    elif word not in _IDLE:
        reading.warnings.append(f"variable {name('variable', variable)} is none that kvcalc reads of this engine")


def _flash(reading: Reading, variable: str, value: str) -> None:
    word = value.lower()
    if word not in (*_TRUE, *_FALSE, ""):
        raise UsageError(f"{variable}: its value is neither true nor false", "Ollama reads 1 or 0")
    if word:
        reading.settings["flash_attention"] = "on" if word in _TRUE else "off"
