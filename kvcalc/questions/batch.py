"""`batch`: JSON Lines in, JSON Lines out, same order, one line in memory at a time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kvcalc.core.errors import KvcalcError, UsageError, nearest
from kvcalc.core.units import clean
from kvcalc.questions.documents.batch import Answered, Failed
from kvcalc.questions.documents.common import Fault
from kvcalc.questions.documents.kinds import plain
from kvcalc.questions.documents.parts import fault_of
from kvcalc.questions.request import parse_request
from kvcalc.sources.files import unambiguous

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kvcalc.questions.documents.estimate import EstimateDocument
    from kvcalc.questions.documents.fit import FitDocument

#: A longer line is answered with an error without being parsed.
LONGEST_LINE = 16 * 1024**2

_COMMANDS = ("estimate", "fit")


def answer(line: str) -> dict[str, Any]:
    """The answer to one line: `{"id", "ok": true, "result"}` or `{"id", "ok": false, "error"}`. Never raises."""
    found: dict[str, Any] = plain(_answer(line))
    return found


def _answer(line: str) -> Answered | Failed:
    number: Any = None
    try:
        if len(line) > LONGEST_LINE:
            raise UsageError(f"a line of {len(line):,} characters is too long", f"at most {LONGEST_LINE:,}")  # noqa: TRY301
        try:
            request = json.loads(line.removeprefix("\ufeff"), object_pairs_hook=lambda pairs: unambiguous(pairs, "request"))
        except (ValueError, RecursionError):
            raise UsageError("the line is not JSON", "one JSON object per line") from None
        if not isinstance(request, dict):
            raise UsageError("the line is not a JSON object", 'write it like {"command": "estimate", "model": …}')  # noqa: TRY301
        number = _number(request.get("id"))
        return Answered(number, ok=True, result=_result(request))
    except KvcalcError as error:
        return Failed(number, ok=False, error=fault_of(error))
    except RecursionError:
        return Failed(number, ok=False, error=fault_of(UsageError("the request is nested too deeply", "flatten it")))
    except Exception as bug:  # noqa: BLE001  one bad line must never stop the others
        message = f"kvcalc failed on this line ({type(bug).__name__}), which is a bug in kvcalc"
        return Failed(number, ok=False, error=Fault("internal", message, "report it", 70))


def _number(given: Any) -> Any:
    """The line's id, if the answer can repeat it: NaN, Infinity and 1e999 are no JSON. Raises UsageError."""
    try:
        json.dumps(given, allow_nan=False)
    except ValueError:
        raise UsageError("request: 'id' holds a number that JSON does not have", "number the lines with integers or text") from None
    return given


def _result(request: dict[str, Any]) -> EstimateDocument | FitDocument:
    command = request.get("command")
    if request.get("model") == "-":
        raise UsageError(
            "request: a batch has no model '-', because its lines may come from standard input", "give it inline: {hf_config: …}"
        )
    if command == "estimate":
        from kvcalc.questions.estimate import estimate

        return estimate(parse_request(request)).document()
    if command == "fit":
        from kvcalc.questions.fit_card import fit_or_size

        return fit_or_size(parse_request(request)).document()
    hint = nearest(str(command), _COMMANDS) or "one of " + ", ".join(_COMMANDS)
    raise UsageError(f"request: unknown command '{clean(command, 40)}'", hint)


def answers(lines: Iterable[str]) -> Iterator[tuple[bool, str]]:
    """For each line that is not blank: whether it was answered ok, and the answer as JSON."""
    encode = json.JSONEncoder(separators=(",", ":")).encode
    for line in lines:
        if line.strip():
            found = answer(line)
            yield bool(found["ok"]), encode(found)
