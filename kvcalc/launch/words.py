"""The words of a launch command: from a shell history, a compose file or a manifest, split as a shell splits them.

Backslash-newlines join lines, other newlines separate words, `#` at the beginning of a line or between spaces begins a comment,
and the command ends where a shell would send its output elsewhere or begin another one. Nothing is expanded and nothing is run.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from kvcalc.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

#: No launch command comes near any of these.
LONGEST_TEXT = 256 * 1024
MOST_WORDS = 4096
LONGEST_WORD = 64 * 1024

_CONTINUED = re.compile(r"\\\r?\n")
_COMMENT = re.compile(r"(?:^|[ \t])#(?:[ \t!].*)?$|^[ \t]*#.*$", re.MULTILINE)
_WHOLE_LINE = re.compile(r"^[ \t]*#.*$", re.MULTILINE)
#: Unquoted, these end a command or send its output somewhere.
_END = re.compile(r"\|\|?|&&?|;|[0-9&]?>{1,2}(?:&[0-9]|[\w./-]+)?|<", re.ASCII)


def split(text: str) -> list[str]:
    """The words of `text`. Raises UsageError for what is too long, and for quotes that are not closed."""
    if len(text) > LONGEST_TEXT:
        raise UsageError(f"the command has more than {LONGEST_TEXT:,} characters", "give the launch command alone")
    lines = _WHOLE_LINE.sub("", text)
    lines = "\n".join(_without_comment(line) for line in lines.split("\n"))
    try:
        return shlex.split(_CONTINUED.sub("", lines))
    except ValueError:
        raise UsageError(
            "the command has a quote that is not closed, or ends in a backslash", "quote it as a shell would read it"
        ) from None


def _without_comment(line: str) -> str:
    """The line up to a `#` between spaces that stands outside quotes."""
    found = _COMMENT.search(line)
    if found is None:
        return line
    before = line[: found.start()]
    return line if before.count("'") % 2 or before.count('"') % 2 else before


def bounded(words: Iterable[str]) -> list[str]:
    """The words as they are. Raises UsageError for more, or longer ones, than any launch command has."""
    found: list[str] = []
    for word in words:
        if len(word) > LONGEST_WORD:
            raise UsageError(f"the command has a word of more than {LONGEST_WORD:,} characters", "give the launch command alone")
        found.append(word)
        if len(found) > MOST_WORDS:
            raise UsageError(f"the command has more than {MOST_WORDS:,} words", "give the launch command alone")
    return found


def until_end(words: Iterable[str]) -> list[str]:
    """The words up to where a shell would end the command, or send its output elsewhere."""
    found: list[str] = []
    for word in words:
        if _END.fullmatch(word):
            break
        found.append(word.removesuffix(";"))
        if word.endswith(";"):
            break
    return found
