"""No text of a file begins a line of an answer as a command that CI systems obey, in any format and however narrow the terminal."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
import yaml

from kvcalc.cli.app import run
from kvcalc.core.units import unobeyed
from kvcalc.render import FORMATS
from kvcalc.render.documents import as_yaml
from kvcalc.render.output import _wrapped

if TYPE_CHECKING:
    from pathlib import Path

COMMAND = "::error file=a.py,line=1::it is all well"
OBEYED = re.compile(r"^\s*::", re.MULTILINE)


@pytest.mark.parametrize("lead", [0, 40, 110, 118, 119, 120, 125, 300])
def test_yaml_folds_no_text(lead: int) -> None:
    document = {COMMAND: {"notes": [f"{'word ' * (lead // 5)}{COMMAND}", f"two\n{COMMAND}", f"  {COMMAND}"]}, "text": COMMAND}
    text = as_yaml(document)
    assert not OBEYED.search(text)
    assert yaml.safe_load(text) == document


@pytest.mark.parametrize("name", [*FORMATS, "junit", "sarif", "gitlab", "github"])
def test_a_budgets_words_are_no_command(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    message = f"{'ask the serving team ' * 6}{COMMAND}"
    budgets = [
        {"name": "a", "model": "gpt2", "limits": {"total": 1}, "message": message},
        {"name": "b", "model": COMMAND, "limits": {"total": 1}},
    ]
    (tmp_path / "kvcalc.yaml").write_text(json.dumps({"budgets": budgets}))
    assert run(("check", "-f", name)) in (1, 2, 3)
    found = capsys.readouterr()
    ours = 2 if name == "github" else 0
    assert len(OBEYED.findall(found.out)) == ours
    assert not OBEYED.search(found.err)


@pytest.mark.parametrize("width", range(20, 60))
def test_a_wrapped_note_is_no_command(width: int) -> None:
    text = unobeyed(_wrapped(f"note: the model says {COMMAND} and {COMMAND}", width))
    assert not OBEYED.search(text)
