"""Where text goes: files written whole, permissions kept, streams that fail."""

from __future__ import annotations

import io
import os
import stat
import sys
from pathlib import Path

import pytest

from kvcalc.core.errors import UsageError
from kvcalc.questions.documents.models import GpusDocument
from kvcalc.render import emit
from kvcalc.render.output import close_streams, say, write
from kvcalc.render.view import Column, Facts, Table, Text, View


def test_a_new_file_has_the_permissions_of_a_new_file(tmp_path: Path) -> None:
    mask = os.umask(0o027)
    try:
        write("text", str(tmp_path / "new"))
    finally:
        os.umask(mask)
    assert (tmp_path / "new").read_text() == "text"
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


def test_a_replaced_file_keeps_its_permissions_and_links_stay_links(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    target.chmod(0o600)
    link.symlink_to(target)
    write("new", str(link))
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "target"
    target.write_text("old")

    def full(_self: Path, _to: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(UsageError, match="No space left on device"):
        write("new", str(target))
    assert [path.name for path in tmp_path.iterdir()] == ["target"]
    assert target.read_text() == "old"


@pytest.mark.parametrize("where", ["missing/answer", "folder"])
def test_places_that_cannot_be_written(tmp_path: Path, where: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match="--output: cannot write"):
        write("text", str(tmp_path / where))


@pytest.mark.skipif(not Path("/dev/null").exists(), reason="devices of POSIX")
def test_a_device_is_written_not_replaced() -> None:
    write("text", "/dev/null")
    assert not Path("/dev/null").is_file()


def test_a_dash_is_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    write("text\n", "-")
    assert capsys.readouterr().out == "text\n"


class _Closed(io.StringIO):
    """A stream whose reader has gone."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self.error = error
        self.file = open(os.devnull, "w")  # noqa: PTH123, SIM115  closed by the test

    def write(self, _text: str) -> int:
        raise self.error

    def fileno(self) -> int:
        return self.file.fileno()


@pytest.mark.parametrize(("error", "raises"), [(BrokenPipeError(), False), (OSError(28, "No space left on device"), True)])
def test_a_closed_pipe_is_no_error_and_a_full_disk_is_one(monkeypatch: pytest.MonkeyPatch, error: OSError, raises: bool) -> None:
    stream = _Closed(error)
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", _Closed(error))
    say(["nobody hears it"])
    if raises:
        with pytest.raises(UsageError, match="No space left"):
            write("text")
    else:
        write("text")
    assert close_streams(3) == 3
    stream.file.close()
    sys.stderr.file.close()  # type: ignore[attr-defined]


def view(document: GpusDocument) -> View:
    return View("figure", (), document.notes, document.warnings)


def test_notes_stand_behind_the_first_line_and_only_once(capsys: pytest.CaptureFixture[str]) -> None:
    document = GpusDocument(None, None, None, None, (), ("a note",), ("a warning",))
    emit(document, view)
    assert capsys.readouterr() == ("figure\n", "warning: a warning\nnote: a note\n")
    for name in ("json", "yaml", "markdown", "html"):
        emit(document, view, name)
        found = capsys.readouterr()
        assert "a note" in found.out
        assert found.err == ""


def test_control_characters_of_files_reach_no_stream(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "\x1b]0;title\x07 \x9b31m\r\n"
    table = Table((Column("a", "a"), Column("n", "n", "count")), ((hostile, 1),), hostile)

    def hostile_view(_: GpusDocument) -> View:
        return View(hostile, (Facts(((hostile, hostile),)), Text((hostile,), hostile), table), (hostile,), (hostile,), table)

    for name in ("table", "plain", "csv", "markdown", "html"):
        emit(GpusDocument(None, None, None, None, (), (), ()), hostile_view, name)
        found = capsys.readouterr()
        assert (found.out + found.err).replace("\n", "").isprintable(), name
