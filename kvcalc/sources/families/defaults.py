"""What files leave to the config class of their model_type, loaded once and only when a config.json is read."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

#: model_types that share another's config class, or were renamed to it.
_SAME_CLASS = {
    "RefinedWeb": "falcon",
    "RefinedWebModel": "falcon",
    "kimi_k2": "deepseek_v3",
    "mimo_v2": "mimo_v2_flash",
}


@lru_cache(maxsize=1)
def _tables() -> dict[str, dict[str, Any]]:
    """class_defaults.json, as tools/generate_class_defaults.py wrote it."""
    loaded: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("class_defaults.json").read_bytes())
    return loaded


def class_defaults(model_type: str) -> dict[str, Any]:
    """The defaults of one model_type; empty where transformers has no such class."""
    found: dict[str, Any] = _tables()["defaults"].get(_SAME_CLASS.get(model_type, model_type), {})
    return found


def text_type(model_type: str) -> str | None:
    """The model_type of the language model inside a wrapper (image, audio, …), where the file leaves it out."""
    found: str | None = _tables()["text"].get(model_type)
    return found
