"""Write docs/cli.md from the commands themselves: what `kvcalc COMMAND --help` says.

python tools/cli_page.py
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvcalc.cli.app import COMMANDS
from kvcalc.cli.root import command_of, usage_of

if TYPE_CHECKING:
    from collections.abc import Iterator

TARGET = Path(__file__).parent.parent / "docs" / "cli.md"
_MADE = "<!-- Written by tools/cli_page.py from kvcalc/cli. Change the help of a command, then run `make docs`. -->"


def pages() -> dict[Path, str]:
    """The page's path and text."""
    root = command_of(COMMANDS)
    return {TARGET: "\n".join(_lines(root)) + "\n"}


def _lines(root: Any) -> Iterator[str]:
    yield from ("# Commands", "", _MADE, "")
    yield from (*_prose(root.help), "", "| command | does |", "|---|---|")
    found = list(_commands(root, "kvcalc"))
    yield from (f"| [`{name}`](#{name.replace(' ', '-')}) | {_cell(_prose(command.help)[0])} |" for name, command in found)
    for name, command in found:
        yield from _command(name, command)


def _commands(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Every command that does something, those in groups by their whole name."""
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if hasattr(command, "list_commands"):
            yield from _commands(command, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}", command


def _command(name: str, command: Any) -> Iterator[str]:
    options = [item for item in command.params if item.param_type_name == "option" and not item.hidden]
    arguments = [item for item in command.params if item.param_type_name == "argument"]
    words = [*(usage_of(item) for item in arguments), *(["[OPTIONS]"] if options else [])]
    if command.context_settings.get("allow_interspersed_args") is False:
        words.reverse()
    usage = " ".join([name, *words])
    yield from ("", f"## {name}", "", f"`{usage}`", "", *_prose(command.help))
    if arguments or options:
        yield from ("", "| | |", "|---|---|")
        yield from (f"| `{_cell(item.metavar or item.name.upper())}` | {_cell(item.help or '')} |" for item in arguments)
        yield from (f"| {_flags(item)} | {_cell(_help(item))} |" for item in options)
    examples = _examples(command.epilog or "")
    if examples:
        yield from ("", "```console", *(f"$ {line}" for line in examples), "```")


def _flags(option: Any) -> str:
    value = "" if option.is_flag else f" {option.metavar or option.type.name.upper()}"
    return ", ".join(f"`{flag}`" for flag in option.opts[:-1]) + (", " if option.opts[1:] else "") + f"`{_cell(option.opts[-1] + value)}`"


def _help(option: Any) -> str:
    """The help, and the default where the help does not say it."""
    shown = "" if option.default in (None, False, ()) or "[" in (option.help or "") else f" [{option.default}]"
    return (option.help or "") + shown


def _prose(text: str | None) -> list[str]:
    return [" ".join(paragraph.split()) for paragraph in (text or "").split("\n\n") if paragraph.strip()]


def _examples(epilog: str) -> list[str]:
    return [line.strip() for line in epilog.splitlines() if line.strip().startswith(("kvcalc ", "cat ", "journalctl "))]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
