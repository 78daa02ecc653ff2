"""Write docs/techniques/ from the docstrings of kvcalc/techniques and kvcalc/states: the pages that `kvcalc explain` prints.

python tools/techniques_page.py
"""

from __future__ import annotations

import re
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING

from kvcalc.core.states import KINDS
from kvcalc.core.workload import Workload
from kvcalc.questions.explain import explain, page
from kvcalc.questions.techniques import TECHNIQUES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcalc.questions.explain import Section
    from kvcalc.questions.techniques import Parameter

FOLDER = Path(__file__).parent.parent / "docs" / "techniques"
_MADE = "<!-- Written by tools/techniques_page.py from kvcalc/techniques and kvcalc/states. Change a docstring, then run `make docs`. -->"
_PAPER = re.compile(r"arXiv:([0-9]{4}\.[0-9]{5})")
#: Where several kinds of state are one technique to users, the pages of all of them stand on one page.
_STATES = {
    name: [kind for kind, state in KINDS.items() if state.technique == name] for name in {state.technique for state in KINDS.values()}
}
#: Techniques that show nothing on one long sequence, and what they are worked on instead.
_WORKED = {"paged": Workload(context=1000), "prefix": Workload(sequences=4)}
_OPTIONS = {"paged": " --ctx 1000", "prefix": " --sequences 4"}
#: Techniques that are forms of full attention and keep its state.
_FULL = ("mha", "gqa", "mqa")


def names() -> list[str]:
    """Every technique that a model can use or a what-if can apply, in the order of the code."""
    return list(dict.fromkeys([*TECHNIQUES, *(state.technique for state in KINDS.values())]))


def pages() -> dict[Path, str]:
    """Each page's path and text, the index among them."""
    found = {FOLDER / f"{name}.md": "\n".join(_page(name)) + "\n" for name in names()}
    return {FOLDER / "README.md": "\n".join(_index()) + "\n", **found}


def _index() -> Iterator[str]:
    yield from ("# Techniques", "", _MADE, "")
    yield "What a layer can keep, and what can be done about it. `kvcalc explain NAME` prints the same, with the numbers of a model."
    yield from ("", "| technique | what it is | as a what-if |", "|---|---|---|")
    for name in names():
        what_if = f"`kvcalc compare --techniques {name}`" if name in TECHNIQUES else ""
        yield f"| [{name}]({name}.md) | {_cell(_about(name).title)} | {what_if} |"
    yield ""
    yield "Every [storage format](../formats.md) is a what-if too: `kvcalc compare --techniques fp8,q4_0,gqa+q8_0/q4_0`."


def _about(name: str) -> Section:
    return page(TECHNIQUES[name].change.__doc__ if name in TECHNIQUES else KINDS[_STATES[name][0]].__doc__)


def _page(name: str) -> Iterator[str]:
    yield from (f"# {name}", "", _MADE, "")
    yield from _section(_about(name))
    if name in TECHNIQUES:
        yield from _what_if(name)
    kinds = _STATES.get(name, ["full"] if name in _FULL else [])
    for kind in kinds:
        yield from ("", f"## In a model: `kind: {kind}`", "")
        if name in TECHNIQUES or kind != kinds[0]:
            yield from _section(page(KINDS[kind].__doc__))
            yield ""
        yield from _fields(kind)
    used = _FULL if name == "full" else (name,) if kinds and name != "none" else ()
    if used:
        yield from ("", "Models that have it:", "", "```console", *(f"$ kvcalc models list --technique {one}" for one in used), "```")


def _section(section: Section) -> Iterator[str]:
    """Title, formula, prose; papers become links."""
    yield _linked(section.title)
    if section.formula:
        yield from ("", "```text", *section.formula, "```")
    if section.text:
        yield from ("", *(_linked(line) for line in section.text))


def _what_if(name: str) -> Iterator[str]:
    """The command, its parameters, and the lines of its plan on the geometry of the introductions."""
    yield from ("", "## As a what-if", "", "```console", f"$ kvcalc compare --techniques {name}", "```", "")
    technique = TECHNIQUES[name]
    if technique.parameters:
        yield from ("| parameter | default | meaning |", "|---|---|---|")
        yield from (f"| `{item.name}` | {_default(item)} | {_cell(item.about)} |" for item in technique.parameters)
        yield ""
    found = explain(name, _WORKED.get(name, Workload()))
    yield "On the geometry of the introductions: 32 layers, 32 heads x 128, 2 bytes, 32,768 tokens unless a context is given."
    yield from ("", "```console", f"$ kvcalc explain {name}{_OPTIONS.get(name, '')}", "```", "", "```text")
    for section in found.sections[1:]:
        yield from (section.title, *(f"    {line}" for line in section.formula), *(f"  = {line}" for line in section.numbers))
    yield "```"


def _default(item: Parameter) -> str:
    return "from the model" if callable(item.default) else f"`{item.default}`"


def _fields(kind: str) -> Iterator[str]:
    """What a kvcalc YAML may say about the state."""
    own = fields(KINDS[kind])
    if not own:
        yield "It has no fields."
        return
    needed = [f"`{field.name}`" for field in own if field.default is MISSING]
    others = [f"`{field.name}` ({_word(field.default)})" for field in own if field.default is not MISSING]
    if needed:
        yield f"Required: {', '.join(needed)}." + (" Optional, with their defaults:" if others else "")
    yield ", ".join(others) + "." if others else ""


def _word(value: object) -> str:
    return {None: "unset", True: "yes", False: "no"}.get(value, str(value)) if value is None or isinstance(value, bool) else str(value)


def _linked(text: str) -> str:
    return _PAPER.sub(r"[arXiv:\1](https://arxiv.org/abs/\1)", text)


def _cell(text: str) -> str:
    return _linked(text).replace("|", "\\|")


def main() -> None:
    """Write every page, and remove those of techniques that are no more."""
    FOLDER.mkdir(exist_ok=True)
    wanted = pages()
    for path in set(FOLDER.glob("*.md")) - set(wanted):
        path.unlink()
    for path, text in wanted.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
