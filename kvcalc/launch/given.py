"""A launch command as it is given: its words, one text that holds them all, or a manifest of a container."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kvcalc.core.errors import UsageError
from kvcalc.launch.manifest import is_manifest, words_of
from kvcalc.launch.words import LONGEST_TEXT, bounded, split

if TYPE_CHECKING:
    from collections.abc import Sequence


def _of_text(text: str) -> list[str]:
    if len(text) <= LONGEST_TEXT and is_manifest(text):
        return words_of(text)
    return bounded(split(text))


def read_words(given: Sequence[str]) -> list[str]:
    """Words as they are, or one text that holds a whole command. Raises UsageError where there are none."""
    words = _of_text(given[0]) if len(given) == 1 and re.search(r"\s|^[\[{]", given[0]) else bounded(given)
    if not words:
        raise UsageError("the launch command is empty", "write it behind the options of kvcalc: kvcalc launch vllm serve org/name")
    return words
