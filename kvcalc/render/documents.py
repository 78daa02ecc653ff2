"""`json` and `yaml`: the document itself."""

from __future__ import annotations

import json
from typing import Any

#: Wider than any text.
_UNFOLDED = 2**30


def as_json(document: dict[str, Any]) -> str:
    """Indented JSON, ASCII only."""
    return json.dumps(document, indent=2) + "\n"


def as_yaml(document: dict[str, Any]) -> str:
    """YAML in the document's own order; ASCII only where a text of it could turn a terminal's writing around."""
    text = _yaml(document, ascii_only=False)
    return text if all(line.isprintable() for line in text.split("\n")) else _yaml(document, ascii_only=True)


def _yaml(document: dict[str, Any], *, ascii_only: bool) -> str:
    """No text is folded, and one that begins with a colon or has several lines is quoted: none begins a line of the answer."""
    import yaml

    class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
        """Texts as they are, or in double quotes."""

    def text(dumper: Any, value: str) -> Any:
        quoted = value[:1] == ":" or not value.isprintable()
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style='"' if quoted else None)

    Dumper.add_representer(str, text)
    return str(yaml.dump(document, Dumper=Dumper, sort_keys=False, allow_unicode=not ascii_only, width=_UNFOLDED))
