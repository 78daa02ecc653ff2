"""The root command, and Typer's help and errors in kvcalc's own words."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from kvcalc import __version__
from kvcalc.core.errors import EXIT_OK, EXIT_USAGE, UsageError, nearest
from kvcalc.core.units import clean

if TYPE_CHECKING:
    from collections.abc import Mapping

#: What Typer (or the Click inside it) raises for a command line that it cannot read.
_CommandLineError: Any = typer.BadParameter.__mro__[1]


#: Plain help, `-h`, no Rich: what every Typer app here is made with.
_PLAIN: dict[str, Any] = {"rich_markup_mode": None, "context_settings": {"help_option_names": ["-h", "--help"]}}


_FIRST_STEPS = """\b
First steps:
  kvcalc estimate llama-3.1-8b --ctx 32k       how many bytes
  kvcalc fit llama-3.1-8b --gpu l4-24gb        does it fit, and how long a context
  kvcalc models list llama                     the names that MODEL can be
  kvcalc COMMAND --help                        options and examples
"""


class _AsTyped:
    """How text and switches are read: as they stand. Numbers, sizes and formats in them are read by kvcalc, which knows their words."""

    @staticmethod
    def coerce(value: Any, param: Any, ctx: Any) -> Any:
        """The words of a repeated parameter as a list. Raises BadParameter for bytes that are no text."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if isinstance(value, bool):
            return value
        found = value if isinstance(value, str) else list(value)
        try:
            "".join(found).encode()
        except UnicodeEncodeError:
            raise typer.BadParameter("is not UTF-8 text", ctx=ctx, param=param) from None
        return found


def as_typed(parameter: Any) -> Any:
    """A parameter that Typer reads without Pydantic, whose adapters take as long to import as all of kvcalc."""
    if getattr(getattr(parameter, "type_descriptor", None), "annotation", None) in (str, list[str], bool):
        parameter.get_runtime_param = lambda: _AsTyped
    return parameter


class Command(TyperCommand):
    """A command whose help writes arguments as people write them: `MODEL`, `[MODEL]...`, without the types of Python."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Every parameter, `--help` included, read as it is typed."""
        return [as_typed(item) for item in super().get_params(ctx)]

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ARG002  Click's signature
        """`[OPTIONS] MODEL`."""
        return ["[OPTIONS]", *(usage_of(item) for item in self.params if item.param_type_name == "argument")]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, then options."""
        arguments = [(_name(item), getattr(item, "help", None) or "") for item in self.params if item.param_type_name == "argument"]
        options = [item.get_help_record(ctx) for item in self.get_params(ctx) if item.param_type_name == "option"]
        for title, rows in (("Arguments", arguments), ("Options", [record for record in options if record])):
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def usage_of(argument: Any) -> str:
    """An argument on a usage line: `MODEL`, `[FILE]`, `MODEL...`, `[MODEL]...`."""
    name = _name(argument)
    return (name if argument.required else f"[{name}]") + ("..." if argument.nargs != 1 else "")


def _name(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


class _App(typer.Typer):
    """A Typer whose commands are `Command`s."""

    def command(self, name: str | None = None, **settings: Any) -> Any:
        return super().command(name, cls=Command, **settings)


class Commands(TyperGroup):
    """A group that names the nearest commands on a miss."""

    def get_params(self, ctx: Any) -> list[Any]:
        """As those of a command."""
        return [as_typed(item) for item in super().get_params(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """With the first line of its help as a whole, where Click would cut it."""
        found = super().get_command(ctx, cmd_name)
        return None if found is None else _whole(found)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As Click does it, but an unknown name is a UsageError of ours."""
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not name.startswith("-"):
            hint = nearest(name, known) or "commands: " + ", ".join(known)
            raise UsageError(f"unknown command '{clean(name, 40)}'", hint)
        return super().resolve_command(ctx, args)


def app() -> typer.Typer:
    """A Typer app for one command."""
    return _App(add_completion=False, **_PLAIN)


def group(about: str) -> typer.Typer:
    """A Typer app for commands under one name; by itself it prints its help."""
    made = _App(add_completion=False, cls=Commands, help=about, **_PLAIN)
    made.callback(invoke_without_command=True)(_help_alone)
    return made


def _help_alone(context: typer.Context) -> int:
    if context.invoked_subcommand is not None:
        return EXIT_OK
    typer.echo(context.get_help(), err=True)
    return EXIT_USAGE


def command_of(commands: Mapping[str, str]) -> Any:
    """The root group over `commands`, whose modules are imported one by one as they are asked for."""

    class Root(Commands):
        """Finds a command by importing its module."""

        def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  Click's signature
            return list(commands)

        def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002  Click's signature
            if cmd_name not in commands:
                return None
            found = typer.main.get_command(import_module(commands[cmd_name]).app)
            found.name = cmd_name
            return _whole(found)

    root = typer.Typer(cls=Root, epilog=_FIRST_STEPS, **_PLAIN)
    root.callback(invoke_without_command=True)(_root)
    return typer.main.get_command(root)


def _whole(command: Any) -> Any:
    command.short_help = (command.help or "").strip().partition("\n")[0]
    return command


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kvcalc {__version__}")
        raise typer.Exit


def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", "-V", callback=_show_version, is_eager=True, help="Print the version.")] = False,
) -> int:
    """KV-cache memory, to the byte: what a model's cache takes, what fits, and why.

    MODEL is a catalogue id (llama-2-7b), a Hub repository (org/name), a config.json or the folder that holds one, a .gguf, a
    kvcalc .yaml, or - for standard input.
    """
    del version
    return _help_alone(context)


def usage_error(error: Any) -> UsageError | None:
    """What Typer says about a bad command line as a UsageError with the nearest names; None for any other exception."""
    if not isinstance(error, _CommandLineError):
        return None
    command = getattr(getattr(error, "ctx", None), "command_path", "kvcalc")
    hint = f"see `{command} --help`"
    option = getattr(error, "option_name", None)
    if type(error).__name__ == "NoSuchOption" and option is not None:
        return UsageError(f"unknown option '{clean(option, 40)}'", nearest(option, _options(error)) or hint)
    sentence = " ".join(error.format_message().split()).rstrip(".")
    return UsageError(sentence[:1].lower() + sentence[1:], hint)


def _options(error: Any) -> list[str]:
    """Every long option of the command that refused one."""
    command = getattr(error.ctx, "command", None)
    return [name for parameter in getattr(command, "params", ()) for name in parameter.opts if name.startswith("--")]
