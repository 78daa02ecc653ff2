"""What kvcalc reads, as a page: every model_type beside the rule that lays out its layers.

families_page()  →  docs/families.md        written by tools/generate_families_page.py, held current by a test
"""

from __future__ import annotations

from importlib import import_module

from kvcalc.sources.hf.families.index import INDEX

_HEAD = """\
# Model families

<!-- Written by tools/generate_families_page.py from kvcalc/sources/families. Change the code, then run it again. -->

kvcalc reads a `config.json` by the `model_type` of its language model: {count} of them. A wrapper (an image or audio model around
a language model) needs no rule of its own. Where a file leaves a field out, the class default of its model_type fills in, and the
answer says so. A model_type that is not listed here is refused, with the fields that its file carries.
"""


def families_page() -> str:
    """The page as Markdown: a section a module, a row a rule."""
    modules: dict[str, dict[str, list[str]]] = {}
    for model_type, (module, reader) in INDEX.items():
        modules.setdefault(module, {}).setdefault(reader, []).append(model_type)
    parts = [_HEAD.format(count=len(INDEX))]
    for module, readers in modules.items():
        found = import_module(f"kvcalc.sources.hf.families.{module}")
        parts.append(f"## {_title(found.__doc__)}\n")
        rows = [
            f"| {_sentence(getattr(found, reader).__doc__)} | {', '.join(f'`{name}`' for name in names)} |"
            for reader, names in readers.items()
        ]
        parts.append("| layers | model_type |\n| --- | --- |\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def _title(doc: str | None) -> str:
    """The first line of a docstring, without its stop."""
    return (doc or "").strip().splitlines()[0].rstrip(".")


def _sentence(doc: str | None) -> str:
    """The first paragraph of a docstring, fit for a table's cell."""
    return " ".join((doc or "").strip().split("\n\n")[0].split()).replace("|", "\\|")
