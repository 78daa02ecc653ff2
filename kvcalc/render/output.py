"""Where text goes: stdout, stderr, a file written whole or not at all. A closed pipe is no error."""

from __future__ import annotations

import codecs
import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from kvcalc.core import inputs
from kvcalc.core.errors import UsageError
from kvcalc.core.units import clean, unobeyed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kvcalc.core.errors import KvcalcError

#: Long enough for any sentence of ours, short enough that hostile input cannot flood a terminal.
_LONGEST_SENTENCE = 1000
#: The signs that kvcalc itself writes, for streams whose encoding does not have them.
_IN_ASCII = {
    ord(sign): plain
    for sign, plain in {
        "─": "-",
        "│": "|",
        "█": "#",
        "…": "...",
        "·": "|",
        "→": "->",
        "≤": "<=",
        "≥": ">=",
        "⌈": "ceil(",
        "⌉": ")",
        "²": "^2",
        "³": "^3",
        "ᵀ": "^T",
        "Σ": "sum",
        "√": "sqrt",
        "∘": "o",
        "α": "alpha",
        "β": "beta",
        "γ": "gamma",
        "Δ": "delta",
    }.items()
}
_HANDLER = "kvcalc.plain"


def tolerate_any_text() -> None:
    """Make streams write in ASCII what their encoding cannot hold, and escape what has no such form, instead of failing on it."""
    codecs.register_error(_HANDLER, _in_ascii)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors=_HANDLER)
    reconfigure = getattr(sys.stdin, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(encoding="utf-8", errors="surrogateescape")


def _in_ascii(error: UnicodeError) -> tuple[str | bytes, int]:
    """The error handler behind `tolerate_any_text`; what stands at the fault is written by itself, what follows is tried again."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    sign = error.object[error.start]
    if ord(sign) in _IN_ASCII:
        return _IN_ASCII[ord(sign)], error.start + 1
    return codecs.backslashreplace_errors(UnicodeEncodeError(error.encoding, sign, 0, 1, error.reason))[0], error.start + 1


def write(text: str, file: str | None = None) -> None:
    """`text` to `file`, or to stdout. Raises UsageError if it cannot be written."""
    if file is not None and file != "-":
        _write_file(text.encode("utf-8", errors="backslashreplace"), file)
        return
    _to_stdout(lambda: sys.stdout.write(text))


def write_bytes(data: bytes, file: str | None = None) -> None:
    """`data` to `file`, or to stdout as it is. Raises UsageError if it cannot be written."""
    if file is not None and file != "-":
        _write_file(data, file)
        return
    _to_stdout(lambda: sys.stdout.buffer.write(data))


def _to_stdout(put: Callable[[], object]) -> None:
    try:
        put()
        sys.stdout.flush()
    except BrokenPipeError:
        _discard(sys.stdout)
    except OSError as error:
        _discard(sys.stdout)
        raise UsageError(f"cannot write the answer: {error.strerror}") from None


def say(lines: Iterable[str]) -> None:
    """Notes and warnings on stderr: each a line, and on a terminal as many as its width needs, broken between words."""
    width = _width_of_stderr()
    try:
        for line in lines:
            sys.stderr.write(unobeyed(line if width is None or len(line) <= width else _wrapped(line, width)) + "\n")
        sys.stderr.flush()
    except OSError:
        _discard(sys.stderr)


def _width_of_stderr() -> int | None:
    """None where stderr is no terminal: a log has a note a line."""
    if sys.stderr is None or not sys.stderr.isatty():
        return None
    import shutil

    return shutil.get_terminal_size().columns


def _wrapped(line: str, width: int) -> str:
    import textwrap

    return textwrap.fill(line, max(width, 20), subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def write_error(error: KvcalcError, *, as_json: bool) -> None:
    """One sentence on stderr, and with `as_json` the document `kvcalc.error/1` on stdout."""
    if as_json:
        import json

        from kvcalc.questions.documents.batch import ErrorDocument
        from kvcalc.questions.documents.kinds import plain
        from kvcalc.questions.documents.parts import fault_of

        write(json.dumps(plain(ErrorDocument(fault_of(error))), indent=2) + "\n")
    sentence = f"{error.message}; {error.hint}" if error.hint else error.message
    say([f"error: {clean(' '.join(sentence.split()), _LONGEST_SENTENCE)}"])


def close_streams(code: int) -> int:
    """Flush what is left, quietly; the exit code."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            _discard(stream)
    return code


def _discard(stream: TextIO) -> None:
    """Send whatever is still written to `stream` nowhere, so that closing it at exit cannot fail."""
    with open(os.devnull, "wb") as nowhere:  # noqa: PTH123
        os.dup2(nowhere.fileno(), stream.fileno())


def _write_file(data: bytes, file: str) -> None:
    from kvcalc.sources.files import user_path

    path = Path(os.path.realpath(user_path(file)))
    if inputs.has(path):
        raise UsageError(f"--output: '{clean(file)}' is what was read, and an output never replaces an input", "write to another file")
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)  # a device or a pipe cannot be replaced
        else:
            _replace(path, data)
    except OSError as error:
        raise UsageError(
            f"--output: cannot write '{clean(file)}': {error.strerror}", "give a file in a folder that can be written"
        ) from None


def _replace(path: Path, data: bytes) -> None:
    """A temporary file beside `path`, renamed over it: readers see the old text or the new one, never a part."""
    import tempfile

    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123  a descriptor, not a path
            file.write(data)
        Path(name).chmod(_mode(path))
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _mode(path: Path) -> int:
    """The permissions of the file that is replaced, else those of a new one."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask
