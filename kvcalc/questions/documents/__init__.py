"""The documents: what kvcalc answers, as frozen dataclasses, one module a command.

    an answer's .document() ── EstimateDocument(model=…, bytes=…) ──┬─ plain() ──▶ JSON, YAML
                                                                    └─ a view of render/ ──▶ table, CSV, Markdown, HTML

The fields are the keys, in order; `from` and `class` carry an underscore behind them, which Python asks for. A field whose
default is None is left out of the JSON where it is None. What an annotation says besides its type (kinds.py) is what the JSON Schema says:
tools/schemas.py writes the schemas from these classes, and nothing else describes a document. Within `/1`, keys are only ever added.
"""
