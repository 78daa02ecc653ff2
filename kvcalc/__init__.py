"""kvcalc: the memory that a language model's cache takes, to the byte.

    import kvcalc

    kvcalc.load("llama-2-7b")                                       Architecture
    kvcalc.estimate("llama-2-7b", context="128k").plan.total        68719476736
    kvcalc.fit("llama-2-7b", kv_memory="60GiB").to_dict()           the document of `kvcalc fit -f json`
    kvcalc.compare(techniques=["gqa", "mla"]).to_dict()             the document of `kvcalc compare -f json`
    kvcalc.check("kvcalc.yaml").exit_code                           0 all budgets met, 1 exceeded, 2 or 3 not evaluated

The names are those of a `kvcalc batch` request; a model may also be an Architecture. Everything raises `kvcalc.core.errors.KvcalcError`.
Importing this package imports nothing else; a function imports what it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import Unpack

    from kvcalc.budgets.check import Gate
    from kvcalc.core.architecture import Architecture
    from kvcalc.questions.compare import Comparison
    from kvcalc.questions.estimate import Estimate
    from kvcalc.questions.fit import Fit
    from kvcalc.questions.fit_card import Sized
    from kvcalc.questions.request import Question

    Model = str | Path | Mapping[str, Any] | Architecture

__version__ = "0.1.0"
__all__ = ["__version__", "check", "compare", "estimate", "fit", "load"]


def load(model: Model) -> Architecture:
    """The architecture behind a catalogue id, a path, a repository, or an inline document."""
    from kvcalc.questions import arguments
    from kvcalc.sources import load

    return load(arguments.model(model))


def estimate(model: Model, **question: Unpack[Question]) -> Estimate:
    """What the model's cache takes."""
    from kvcalc.questions import arguments
    from kvcalc.questions.estimate import estimate
    from kvcalc.questions.request import parse_request

    return estimate(parse_request({**question, "model": arguments.model(model)}))


def fit(model: Model, **question: Unpack[Question]) -> Fit | Sized:
    """What fits into `kv_memory` bytes per device, else on `gpu`, whose memory is divided as `kvcalc fit --gpu` does."""
    from kvcalc.questions import arguments
    from kvcalc.questions.fit_card import fit_or_size
    from kvcalc.questions.request import parse_request

    return fit_or_size(parse_request({**question, "model": arguments.model(model)}))


def compare(
    models: Sequence[Model] | Model = (),
    *,
    techniques: Sequence[str] = (),
    engines: Sequence[str] = (),
    settings: Mapping[str, str | int] | None = None,
    **question: Unpack[Question],
) -> Comparison:
    """Techniques, models or engines side by side; `settings` are those of `--set`."""
    from kvcalc.questions import arguments
    from kvcalc.questions.compare import Comparing, compare
    from kvcalc.questions.request import parse_request

    request = parse_request({**question, "model": "-"})
    return compare(
        Comparing(
            request.workload,
            arguments.models(models),
            arguments.texts(techniques, "techniques"),
            arguments.texts(engines, "engines"),
            request.engine,
            arguments.settings(settings),
        )
    )


def check(file: str | Path | None = None, *, baseline: str | Path | None = None, only: Sequence[str] = ()) -> Gate:
    """Every budget of `file`, or of the nearest kvcalc.yaml, met or not."""
    from kvcalc.budgets.check import check
    from kvcalc.questions import arguments

    return check(arguments.path(file, "file"), baseline=arguments.path(baseline, "baseline"), only=arguments.texts(only, "only"))
