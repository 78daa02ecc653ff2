"""Renews `kvcalc/engines/ENGINE/idle_flags.txt` from the help text of the engine's own program.

    vllm serve --help=all | python tools/idle_flags.py vllm            what the list lacks, and what the program no longer has
    vllm serve --help=all | python tools/idle_flags.py vllm --write    the list, made anew

A flag of the help text that stands in no table of the engine's launch.py is idle until somebody reads what it does: look at each line
of the difference before it is written.
"""

from __future__ import annotations

import argparse
import re
import sys
from importlib import import_module
from pathlib import Path

import kvcalc

#: A line that begins an option: its spellings, and what may follow as a value.
_SPELLED = r"-{1,2}[A-Za-z][\w.+-]*(?:[ =](?:\{[^}\n]*\}|\[[^\]\n]*\]|[^-\s,\[{][^,\n]*?))?"
_OPTION = re.compile(rf"^ {{0,8}}({_SPELLED}(?:, +{_SPELLED})*)(?: {{2,}}|$)")
_SPELLING = re.compile(r"(-{1,2}[A-Za-z][\w.+-]*)(?:[ =](\{[^}]*\}|\[[^\]]*\]|[^,]+))?")


def options(text: str) -> dict[str, list[str]]:
    """How many values an option takes ("nothing", "one", "many", "maybe") → its lines: spellings, the first one first."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        match = _OPTION.match(line)
        if match is None:
            continue
        pairs = _SPELLING.findall(match[1])
        value = next((value for _, value in pairs if value), "")
        takes = "nothing" if not value else "maybe" if value.startswith("[") else "many" if "..." in value or "[" in value else "one"
        words = [word for word, _ in pairs if not word.startswith("--no-")]
        if words:
            found.setdefault(takes, []).append(" ".join(sorted(words, key=lambda word: not word.startswith("--"))))
    return found


def main() -> int:
    """Print or write the list. Exit code 1 where it differs from the one that is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", help="the engine's folder, such as vllm")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    launch = import_module(f"kvcalc.engines.{given.engine}.launch")
    path = Path(kvcalc.__file__).parent / "engines" / given.engine / "idle_flags.txt"
    by_hand = set(launch._FLAGS) - set(launch._IDLE)  # noqa: SLF001  the tables are the module's own
    idle = {takes: sorted(line for line in lines if not by_hand & set(line.split())) for takes, lines in options(sys.stdin.read()).items()}
    new, old = ({word for lines in idle.values() for line in lines for word in line.split()}, set(launch._IDLE))  # noqa: SLF001
    for word in sorted(new - old):
        print(f"+ {word}")
    for word in sorted(old - new):
        print(f"- {word}")
    if given.write:
        head = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
        body = [line for takes in ("nothing", "one", "many", "maybe") if idle.get(takes) for line in ("", f"[{takes}]", *idle[takes])]
        path.write_text("\n".join([*head, *body]) + "\n", encoding="utf-8")
    return int(new != old)


if __name__ == "__main__":
    sys.exit(main())
