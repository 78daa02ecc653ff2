"""A repository that gates its cache: a config.json, a kvcalc.yaml beside it, and kvcalc as a process or in this one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from kvcalc.cli.app import run

if TYPE_CHECKING:
    from pathlib import Path

#: 32 layers, 8 K/V heads of 128, bf16: 131,072 B a token.
CONFIG = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131_072,
    "torch_dtype": "bfloat16",
}


@dataclass
class Repository:
    """The working folder of a test."""

    folder: Path
    capsys: pytest.CaptureFixture[str]

    def config(self, **changes: Any) -> None:
        (self.folder / "config.json").write_text(json.dumps(CONFIG | changes))

    def budgets(self, *budgets: dict[str, Any], **top: Any) -> Path:
        """kvcalc.yaml as a person writes it; budgets are named b0, b1, … and ask about ./config.json unless they say otherwise."""
        entries = [{"name": f"b{number}", "model": "./config.json"} | budget for number, budget in enumerate(budgets)]
        plain = json.loads(json.dumps({**top, "budgets": entries}))  # no anchors for what stands twice
        return self.write(yaml.safe_dump(plain, sort_keys=False))

    def write(self, text: str, name: str = "kvcalc.yaml") -> Path:
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def process(self, *arguments: str, folder: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
        """`kvcalc …` as CI starts it."""
        command = [sys.executable, "-m", "kvcalc", *arguments]
        found = subprocess.run(
            command, cwd=folder or self.folder, env={**os.environ, **environment}, capture_output=True, text=True, check=False
        )
        assert "Traceback" not in found.stderr
        return found

    def kvcalc(self, *arguments: str) -> tuple[int, str, str]:
        """The same in this process: exit code, stdout, stderr."""
        code = run(arguments)
        out, err = self.capsys.readouterr()
        return code, out, err


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Repository:
    for name in ("GITHUB_WORKSPACE", "GITHUB_STEP_SUMMARY", "CI_PROJECT_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    made = Repository(tmp_path, capsys)
    made.config()
    return made
