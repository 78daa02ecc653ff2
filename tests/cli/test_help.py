"""`--help`: arguments as people write them, no types of Python, no sentence cut, and a way to the Hub wherever a MODEL is named."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from kvcalc.cli.app import COMMANDS
from kvcalc.cli.root import command_of, usage_of
from kvcalc.core.errors import EXIT_OK, EXIT_USAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from command_line import Answer


def commands(group: Any = None, prefix: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, with its whole name."""
    group = group or command_of(COMMANDS)
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if hasattr(command, "list_commands"):
            yield from commands(command, (*prefix, name))
        else:
            yield (*prefix, name), command


FOUND = list(commands())
NAMES = [" ".join(name) for name, _ in FOUND]


@pytest.mark.parametrize(("name", "command"), FOUND, ids=NAMES)
def test_help_is_for_people(ask: Callable[..., Answer], name: tuple[str, ...], command: Any) -> None:
    text = ask(*name, "--help").out
    usage = text.partition("\n\n")[0]
    for argument in command.params:
        if argument.param_type_name == "argument":
            assert argument.help
            assert usage_of(argument) in usage
    assert not re.search(r"<str>|list\[|[{}]MODEL|\[\[|\]\]", text)
    assert "Examples:" in text
    assert text.isascii(), "help has to be read where nothing else works"


@pytest.mark.parametrize("name", [name for name in COMMANDS if (name,) not in [found for found, _ in FOUND]])
def test_a_groups_help_cuts_no_sentence(ask: Callable[..., Answer], name: str) -> None:
    listed = ask(name, "--help").out.partition("Commands:")[2]
    for found, command in FOUND:
        if found[0] == name:
            assert " ".join(command.help.split("\n\n")[0].split()) in " ".join(listed.split())


def test_the_first_screen_says_what_to_do_first(ask: Callable[..., Answer]) -> None:
    text = ask("--help").out
    steps = [line.strip().split("   ")[0].split() for line in text.partition("First steps:\n")[2].splitlines()]
    assert [step[1] for step in steps] == ["estimate", "fit", "models", "COMMAND"]
    for step in steps[:-1]:
        assert ask(*step[1:]).code == EXIT_OK


def takes_a_model(command: Any) -> bool:
    return any((item.metavar or "").startswith("MODEL") for item in command.params)


@pytest.mark.parametrize(("name", "command"), [found for found in FOUND if takes_a_model(found[1])], ids=str)
def test_whatever_takes_a_model_takes_it_from_the_hub_offline_and_at_a_revision(name: tuple[str, ...], command: Any) -> None:
    flags = {flag for item in command.params for flag in item.opts}
    assert "--offline" in flags
    assert "--revision" in flags or name == ("init",)  # which writes `org/name@revision` into a file, where it stays


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["compare", "--revision", "main"], "--revision is that of one MODEL, and none is given; name one, as org/name"),
        (["compare", "a/b", "c/d", "--revision", "main"], "--revision is that of one MODEL, and 2 are given"),
        (["plot", "a/b", "c/d", "--revision", "main"], "--revision is that of one MODEL"),
        (["plot", "llama-2-7b", "--revision", "main"], "'llama-2-7b' is not a Hub repository without a revision"),
        (["models", "show", "llama-2-7b", "--revision", "main"], "'llama-2-7b' is not a Hub repository"),
        (["models", "import", "a/b@c", "--revision", "main"], "'a/b@c' is not a Hub repository without a revision"),
        (["explain", "mla", "--revision", "main"], "'mla' is not a Hub repository"),
        (["chat", "./config.json", "--revision", "main"], "'./config.json' is not a Hub repository"),
        (["verify", "llama-2-7b", "--revision", "main"], "'llama-2-7b' is not a Hub repository"),
        (["reconcile", "server.log", "--revision", "main"], "--revision is that of one MODEL, and none is given"),
    ],
)
def test_a_revision_of_nothing(refused: Callable[..., str], arguments: list[str], said: str) -> None:
    assert said in refused(EXIT_USAGE, *arguments)
