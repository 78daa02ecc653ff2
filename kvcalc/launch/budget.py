"""A budget's `command:`: an engine's launch command in the place of the keys that it says.

The command decides engine, settings, context, type and ranks; limits, memory and sequences stay keys of the budget, and `model` may say
which model it is. A gate passes nothing that it did not read: a flag in no table is an error here, not a warning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kvcalc.core.errors import UsageError
from kvcalc.core.units import checked_int
from kvcalc.launch.ask import read_command

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: Keys that a command says or leaves to the engine: the file's defaults for them do not hold beside it.
SAID = ("engine", "engine_args", "context", "kv_dtype", "tensor_parallel", "pipeline_parallel", "decode_context_parallel")


class Said(NamedTuple):
    """What a command says of a budget.

    keys           of a request
    weight_dtype   type of the weights; `requantised`: whatever the files hold
    says           (key, value) → the words of the command for a change, None where it has none
    """

    keys: dict[str, Any]
    weight_dtype: str | None
    requantised: bool
    notes: tuple[str, ...]
    says: Callable[[str, Any], str | None]


def of_command(command: Any, folder: Path) -> Said:
    """What a command says, as one text or a list of words; `folder` is that of the budgets. Raises UsageError for what is no command, or leaves anything unread."""
    reading = read_command(_words(command), folder)
    if reading.warnings:
        raise UsageError(reading.warnings[0], "a gate passes nothing that it did not read: leave it out of the budget's command")
    if reading.dtype is not None:
        raise UsageError("the command runs the model in another type than its own", "name a model of that type, and leave --dtype out")
    keys = {**reading.keys, "engine": reading.engine, "engine_args": dict(reading.settings)}
    if reading.model is not None:
        keys["model"] = reading.named()
    notes = [reading.sentence(), *reading.notes, *reading.on_card]
    if reading.replicas > 1:
        notes.append(f"{checked_int(reading.replicas, 'replicas'):,} replicas, each with a cache of its own: the figures are those of one")
    return Said(keys, reading.weight_dtype, reading.requantised, tuple(notes), reading.remedy)


def _words(command: Any) -> list[str]:
    words = [command] if isinstance(command, str) else command
    if not isinstance(words, list) or not all(isinstance(word, str | int | float) and not isinstance(word, bool) for word in words):
        raise UsageError("is neither a text nor a list of words", 'write it like command: "vllm serve org/name -tp 2"')
    return [str(word) for word in words]
