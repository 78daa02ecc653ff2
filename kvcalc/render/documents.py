"""`json` and `yaml`: the document itself."""

from __future__ import annotations

import json
from typing import Any


def as_json(document: dict[str, Any]) -> str:
    """Indented JSON, ASCII only."""
    return json.dumps(document, indent=2) + "\n"


def as_yaml(document: dict[str, Any]) -> str:
    """YAML in the document's own order."""
    import yaml

    return str(yaml.dump(document, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), sort_keys=False, allow_unicode=True, width=120))
