"""`version`: which of the two cache managers a release has, and what it did otherwise.

    main       two managers; `use_kv_cache_manager_v2: auto` is what the model class prefers
    1.0 to 1.2 the first manager everywhere (the setting is a bool, false; the second one is a prototype whose rules were not read),
               index keys on every layer with latents, no KDA

Source: TensorRT-LLM 1.2.1 (2026-04) and main of November 2026: llmapi/llm_args.py; pull request 16558 (index keys, 2026-07).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from kvcalc.core.errors import UsageError
from kvcalc.core.units import clean
from kvcalc.engines.tensorrt_llm.settings import VERSION

_STABLE = re.compile(r"v?1\.([0-2])(?:\.[0-9]{1,3})?", re.ASCII)


class Release(NamedTuple):
    """What a release has.

    name          as answers say it
    second        it has the second manager
    every_index   layers that share an indexer have index keys of their own
    """

    name: str
    second: bool
    every_index: bool


MAIN = Release(VERSION, second=True, every_index=False)


def read_release(text: str) -> Release:
    """The release that a user names. Raises UsageError for one whose rules were not read."""
    if text.strip().lower() == "main":
        return MAIN
    match = _STABLE.fullmatch(text.strip())
    if match is None:
        raise UsageError(
            f"engine setting version: '{clean(text, 40)}' is not a release that kvcalc knows",
            "1.0 to 1.2, or main; between them the models changed to the second manager one by one",
        )
    return Release(f"1.{match[1]} (source read)", second=False, every_index=True)
