"""The view of a fit that a launch command asked for: what would make it fit, in the words of that command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvcalc.render.fit_view import view as fit_view
from kvcalc.render.view import Facts, View

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcalc.questions.documents.fit import CountRemedy, FitDocument, WordRemedy
    from kvcalc.render import ViewOf

#: Options of `kvcalc fit` that `kvcalc launch` does not have.
_OF_THE_COMMAND = ("--ctx ", "--kv-dtype ", "--tp ", "--pp ")


def view_of(say: Callable[[str, Any], str | None]) -> ViewOf:
    """The view whose remedies are said by `say`: (setting, value) → words of the command, None where it has none."""

    def view(document: FitDocument) -> View:
        shown = fit_view(document)
        if not document.remedies:
            return shown
        *blocks, remedies = shown.blocks
        if not isinstance(remedies, Facts):
            return shown
        rows = tuple(
            (say(remedy.setting, remedy.value) or _label(remedy, label), text)
            for remedy, (label, text) in zip(document.remedies, remedies.rows, strict=True)
        )
        return shown._replace(blocks=(*blocks, Facts(rows, remedies.title)))

    return view


def _label(remedy: CountRemedy | WordRemedy, label: str) -> str:
    """The option of kvcalc, or words where `kvcalc launch` has no such option: that belongs to the command."""
    return f"{remedy.setting.replace('_', ' ')} {remedy.value}" if label.startswith(_OF_THE_COMMAND) else label
