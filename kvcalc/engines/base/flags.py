"""Tables of an engine's flags, and the reader that goes through the words of a command with one.

    values(asks("tensor_parallel", whole), "--tensor-parallel-size/-tp")     a key of the request; names of one flag stand with `/`
    settings("vllm", …)                                                    the engine's settings, under their own names
    idle_flags(__file__)                                                   change no byte of the cache: a list beside the module
    switches(refused("it …"), "--disable-sliding-window")                  kvcalc has no rule for it
    values(doubted("…"), …)    values(weights("…"), …)                     a warning, always or where a card's memory is divided

The last of several wins, as in the engines. A flag in no table becomes a warning that names it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kvcalc.core.errors import UsageError
from kvcalc.engines import get_engine
from kvcalc.engines.base.reading import model, name, of_setting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from kvcalc.engines.base.reading import Reading

    #: What a flag does to a reading: (reading, flag, value).
    Does = Callable[[Reading, str, Any], None]

_FLAG = re.compile(r"--?[A-Za-z][A-Za-z0-9_.+-]{0,80}", re.ASCII)
#: A longer word behind one dash is no short flag, and may be a secret.
_LONGEST_SHORT = 8


class Flag(NamedTuple):
    """One flag.

    name    its first spelling
    takes   "nothing", "one" value, "many" (all up to the next flag), "maybe" one; a "word" that may be a truth value in a file;
            "mapping" in a file, further flags
    """

    name: str
    takes: str
    does: Does


class Syntax(NamedTuple):
    """How an engine reads its command line.

    flags       every spelling in the tables
    spell       another spelling → one in the tables, and whether it switches off
    greedy      a value is the next word, whatever it looks like
    equals      `--flag=value` is read
    dotted      `--flag.key value` makes a mapping of --flag
    """

    flags: Mapping[str, Flag]
    spell: Callable[[str], tuple[str, bool]] = lambda word: (word, False)
    greedy: bool = False
    equals: bool = True
    dotted: bool = False


def _table(takes: str, does: Does, names: str) -> dict[str, Flag]:
    found: dict[str, Flag] = {}
    for spellings in names.split():
        first, *others = spellings.split("/")
        found |= dict.fromkeys((first, *others), Flag(first, takes, does))
    return found


def switches(does: Does, names: str) -> dict[str, Flag]:
    """Flags without a value."""
    return _table("nothing", does, names)


def values(does: Does, names: str) -> dict[str, Flag]:
    """Flags with one value."""
    return _table("one", does, names)


def lists(does: Does, names: str) -> dict[str, Flag]:
    """Flags with one value or more."""
    return _table("many", does, names)


def perhaps(does: Does, names: str) -> dict[str, Flag]:
    """Flags with one value or none."""
    return _table("maybe", does, names)


def mappings(does: Does, names: str) -> dict[str, Flag]:
    """Keys of a file that hold further keys, each of which is a flag of its own behind a dot."""
    return _table("mapping", does, names)


def settings(engine: str, *, shorts: Mapping[str, str] | None = None, without: Iterable[str] = (), joint: str = "-") -> dict[str, Flag]:
    """The engine's settings of kvcalc, whose names are the engine's long flags; `shorts` are further spellings of some, `joint` joins words."""
    found: dict[str, Flag] = {}
    for setting in get_engine(engine).settings:
        if setting.name in without:
            continue
        first = "--" + setting.name.replace("_", joint)
        takes = {"bool": "nothing", "list": "many"}.get(setting.type, "one")
        flag = Flag(first, takes, sets(setting.name, of_setting(setting)))
        found |= dict.fromkeys((first, *(shorts or {}).get(setting.name, "").split()), flag)
    return found


def idle_flags(module: str) -> dict[str, Flag]:
    """The flags of `idle_flags.txt` beside a module, which change no byte: under `[nothing]`, `[one]`, … one a line with its spellings."""
    found: dict[str, Flag] = {}
    takes = "one"
    for line in Path(module).with_name("idle_flags.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            takes = line.strip("[]")
        elif line and not line.startswith("#"):
            found |= _table(takes, IDLE, "/".join(line.split()))
    return found


# ── what flags do ───────────────────────────────────────────────────────────────────────────────────────────────────────


def IDLE(reading: Reading, flag: str, value: Any) -> None:  # noqa: N802  stands in tables like a constant
    """Changes no byte of the cache."""


def asks(key: str, read: Callable[[str, Any], Any]) -> Does:
    """A key of the request."""

    def does(reading: Reading, flag: str, value: Any) -> None:
        reading.keys[key] = read(flag, value)
        reading.options[key] = flag

    return does


def sets(setting: str, read: Callable[[str, Any], Any]) -> Does:
    """A setting of the engine."""

    def does(reading: Reading, flag: str, value: Any) -> None:
        reading.settings[setting] = read(flag, value)

    return does


def keeps(attribute: str, read: Callable[[str, Any], Any]) -> Does:
    """Something that the reading keeps besides: the model, its revision."""

    def does(reading: Reading, flag: str, value: Any) -> None:
        setattr(reading, attribute, read(flag, value))

    return does


def refused(why: str, *, unless: tuple[Any, ...] = (False,)) -> Does:
    """Changes bytes, or may, in a way that kvcalc has no rule for; `unless` are values that leave everything as it is."""

    def does(_reading: Reading, flag: str, value: Any) -> None:
        if value not in unless:
            said = flag.replace("--", "--no-", 1) if value is False else flag
            raise UsageError(f"{said} {why}, and kvcalc has no rule for that", "leave it out to see the cache without it")

    return does


def doubted(why: str, *, unless: tuple[Any, ...] = (False,)) -> Does:
    """Answered without it, with a warning."""

    def does(reading: Reading, flag: str, value: Any) -> None:
        if value not in unless:
            reading.warnings.append(f"{flag} {why}")

    return does


def weights(why: str, *, unless: tuple[Any, ...] = (False,)) -> Does:
    """Touches the weights or the engine's buffers, never the cache: a warning where a card's memory is divided."""

    def does(reading: Reading, flag: str, value: Any) -> None:
        if value not in unless:
            reading.on_card.append(f"{flag} {why}: the memory left for the cache is estimated without it")

    return does


def quantized(made: Mapping[str, str], stored: Mapping[str, str], unnamed: Does) -> Does:
    """The type of the weights: `made` so at start whatever the files hold, or as `stored` in them; `unnamed` is for any other word."""

    def does(reading: Reading, flag: str, value: Any) -> None:
        word = name(flag, value).lower()
        reading.requantised = word in made
        reading.weight_dtype = made.get(word) or stored.get(word)
        if reading.weight_dtype is None:
            unnamed(reading, flag, word)

    return does


# ── the reader ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Given(NamedTuple):
    """The flags of a command with the value in force, words that belong to none, and the names of flags in no table."""

    flags: dict[str, tuple[Flag, Any]]
    others: list[str]
    unknown: list[str]


def go_through(words: Sequence[str], syntax: Syntax, *, positionals: int = 0) -> Given:
    """Every flag with its value; the last of several wins. Raises UsageError for a value that is missing or stray."""
    found, others, unknown = Given({}, [], []), [], []
    rest = list(reversed(words))
    before = "the launcher"
    while rest:
        word = rest.pop()
        if not _is_flag(word):
            others.append(word)
            if len(others) > positionals:
                raise UsageError(f"a word behind {before} is neither a flag nor the value of one", "quote values that hold spaces")
            continue
        spelled, has_value, value = word.partition("=") if syntax.equals else (word, "", "")
        flag, key, off = _flag(spelled, syntax)
        if flag is None and not syntax.equals and _flag(word.partition("=")[0], syntax)[0]:
            raise UsageError(f"{word.partition('=')[0]}: this engine reads no value behind =", "write a space for the =")
        if flag is None:
            before = _shown(spelled)
            unknown.append(before)
            list(_values(rest, most=1 if len(others) < positionals else None))
            continue
        before = spelled
        read = _value(flag, spelled, value if has_value else None, rest, syntax, off=off)
        if key:
            read = _merged(found.flags.get(flag.name), key, read)
        found.flags.pop(flag.name, None)
        found.flags[flag.name] = (flag, read)
    return Given(found.flags, others, list(dict.fromkeys(unknown)))


def _is_flag(word: str) -> bool:
    return word[:1] == "-" and _FLAG.match(word) is not None


def _flag(spelled: str, syntax: Syntax) -> tuple[Flag | None, str, bool]:
    """The flag, the key behind its dot, and whether the spelling switches it off."""
    base, _, key = spelled.partition(".") if syntax.dotted else (spelled, "", "")
    known, off = syntax.spell(base)
    flag = syntax.flags.get(known)
    return (None if flag is not None and off and flag.takes != "nothing" else flag), key, off


def _shown(spelled: str) -> str:
    """The name of a flag that is in no table, if it can be one; what it holds is never repeated."""
    fits = _FLAG.fullmatch(spelled) and (spelled.startswith("--") or len(spelled) <= _LONGEST_SHORT)
    return spelled if fits else "a word that begins with a dash"


def _value(flag: Flag, spelled: str, value: str | None, rest: list[str], syntax: Syntax, *, off: bool) -> Any:
    if flag.takes == "nothing":
        if value is not None:
            raise UsageError(f"{spelled} takes no value", f"write {spelled} alone")
        return not off
    if value is not None:
        return [value] if flag.takes == "many" else value
    if syntax.greedy and rest:
        return rest.pop()
    found = list(_values(rest, most=None if flag.takes == "many" else 1))
    if not found and flag.takes != "maybe":
        raise UsageError(f"{spelled} has no value", "write its value behind it")
    return found if flag.takes == "many" else found[0] if found else True


def _values(rest: list[str], *, most: int | None) -> Iterator[str]:
    """Takes up to `most` words off `rest` that are no flags."""
    count = 0
    while rest and (most is None or count < most) and not _is_flag(rest[-1]):
        count += 1
        yield rest.pop()


def _merged(earlier: tuple[Flag, Any] | None, key: str, value: str) -> dict[str, Any]:
    """`--flag.a.b value` put into the mapping that earlier ones began."""
    mapping = dict(earlier[1]) if earlier is not None and isinstance(earlier[1], dict) else {}
    mapping[key] = value
    return mapping


def apply(given: Given, reading: Reading) -> None:
    """Let every flag do what it does; the first word that belongs to none is the model. Raises what the tables raise."""
    for flag, value in given.flags.values():
        flag.does(reading, flag.name, value)
    reading.warnings.extend(f"{flag} is not a flag that kvcalc knows of this engine: it was not read" for flag in given.unknown)
    if given.others:
        reading.model = model("the model", given.others[0])
