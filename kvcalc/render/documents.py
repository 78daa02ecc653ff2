"""`json` and `yaml`: the document itself."""

from __future__ import annotations

import json
from typing import Any


def as_json(document: dict[str, Any]) -> str:
    """Indented JSON, ASCII only."""
    return json.dumps(document, indent=2) + "\n"


def as_yaml(document: dict[str, Any]) -> str:
    """YAML in the document's own order; ASCII only where a text of it could turn a terminal's writing around."""
    text = _yaml(document, ascii_only=False)
    return text if all(line.isprintable() for line in text.split("\n")) else _yaml(document, ascii_only=True)


def _yaml(document: dict[str, Any], *, ascii_only: bool) -> str:
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return str(yaml.dump(document, Dumper=dumper, sort_keys=False, allow_unicode=not ascii_only, width=120))
