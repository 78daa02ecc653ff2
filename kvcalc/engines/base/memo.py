"""What depends on a model and a few settings alone is worked out once, however many questions about that model follow."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from kvcalc.core.architecture import Architecture

Found_co = TypeVar("Found_co", covariant=True)

#: Models whose results are kept; the first one known makes room.
_MODELS = 32
#: Results that are kept of one model.
_RESULTS = 128


class PerModel(Protocol[Found_co]):
    """A function of an architecture and of settings that can be told apart."""

    def __call__(self, architecture: Architecture, *settings: Hashable) -> Found_co:
        """Its result."""


def per_model(function: Callable[..., Found_co]) -> PerModel[Found_co]:
    """`function(architecture, *settings)`, remembered. Architectures are told apart by identity: they never change, and are kept alive.

    Errors are not remembered.
    """
    known: dict[int, tuple[Architecture, dict[tuple[Hashable, ...], Found_co]]] = {}

    @wraps(function)
    def remembered(architecture: Architecture, *settings: Hashable) -> Found_co:
        entry = known.get(id(architecture))
        if entry is None:
            if len(known) >= _MODELS:
                del known[next(iter(known))]
            entry = known[id(architecture)] = (architecture, {})
        results = entry[1]
        if settings in results:
            return results[settings]
        found = function(architecture, *settings)
        if len(results) >= _RESULTS:
            del results[next(iter(results))]
        results[settings] = found
        return found

    return remembered
