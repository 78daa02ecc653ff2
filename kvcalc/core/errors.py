"""Every error that kvcalc raises on purpose.

    KvcalcError
    ├── UsageError                 usage                      exit 2   a flag, a size, a setting that does not exist
    ├── UnknownModelError          unknown_model              exit 2   no such catalogue id and no such path
    ├── InvalidConfigError         invalid_config             exit 2   a file that cannot be what it says it is
    ├── EngineRejectsError         engine_rejects             exit 2   the engine itself refuses these settings
    ├── UnsupportedArchitectureError  unsupported_architecture   exit 3   a model_type that kvcalc has no rule for
    ├── NotFoundError              not_found                  exit 3   the Hub has no such repository, revision or file
    ├── GatedError                 gated                      exit 3   the Hub wants a licence accepted or a token
    ├── HubUnavailableError        hub_unavailable            exit 3   no network, a rate limit, a broken answer
    └── InternalError              internal                   exit 70  a bug in kvcalc

`message` is one sentence: what was read and what was expected. `hint` says what to do next, or is empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable

EXIT_OK = 0
EXIT_OVER_BUDGET = 1
EXIT_USAGE = 2
EXIT_NOT_EVALUATED = 3
EXIT_INTERNAL = 70
EXIT_INTERRUPTED = 130


class KvcalcError(Exception):
    """Base of the tree; never raised itself."""

    type: ClassVar[str] = "internal"
    exit_code: ClassVar[int] = EXIT_INTERNAL

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def to_dict(self) -> dict[str, object]:
        """The `error` object of `kvcalc.error/1`."""
        return {"type": self.type, "message": self.message, "hint": self.hint, "exit_code": self.exit_code}


class UsageError(KvcalcError):
    """A flag, a size or a setting that does not exist or cannot be read."""

    type = "usage"
    exit_code = EXIT_USAGE


class UnknownModelError(KvcalcError):
    """Neither a catalogue id nor a file."""

    type = "unknown_model"
    exit_code = EXIT_USAGE


class InvalidConfigError(KvcalcError):
    """A file or document that lacks, contradicts or misspells what it must hold."""

    type = "invalid_config"
    exit_code = EXIT_USAGE


class EngineRejectsError(KvcalcError):
    """Settings that the serving engine itself refuses to start with."""

    type = "engine_rejects"
    exit_code = EXIT_USAGE


class UnsupportedArchitectureError(KvcalcError):
    """A model_type, or an engine and model pair, that kvcalc has no rule for."""

    type = "unsupported_architecture"
    exit_code = EXIT_NOT_EVALUATED


class NotFoundError(KvcalcError):
    """The Hub answered, and has no such thing."""

    type = "not_found"
    exit_code = EXIT_NOT_EVALUATED


class GatedError(KvcalcError):
    """The Hub answered, and wants a licence accepted or a token."""

    type = "gated"
    exit_code = EXIT_NOT_EVALUATED


class HubUnavailableError(KvcalcError):
    """The Hub could not be asked, or its answer could not be used."""

    type = "hub_unavailable"
    exit_code = EXIT_NOT_EVALUATED


class InternalError(KvcalcError):
    """A bug in kvcalc: something that its own rules say cannot happen."""


def nearest(word: str, known: Iterable[str], *, most: int = 3) -> str:
    """A `did you mean …?` sentence for the names nearest to `word`, or an empty string."""
    from difflib import get_close_matches

    names = get_close_matches(word, list(known), n=most, cutoff=0.5)
    if not names:
        return ""
    return "did you mean " + " or ".join(f"'{name}'" for name in names) + "?"
