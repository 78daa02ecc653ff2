"""Short cuts for the tests of the SGLang and TensorRT-LLM engines."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kvcalc.cli.app import main
from kvcalc.core.workload import Workload
from kvcalc.engines.sglang.engine import Sglang
from kvcalc.engines.tensorrt_llm.engine import TensorRtLlm

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture
    from kvcalc.core.plan import Capacity, Plan
    from kvcalc.engines.base.engine import Engine

SGLANG, TENSORRT = Sglang(), TensorRtLlm()
GIB = 1024**3


class Asked:
    """One engine's answers, with its settings as keywords: `Asked(SGLANG).plan(model, context=…, page_size=16)`."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.own = {setting.name for setting in engine.settings}

    def plan(self, architecture: Architecture, context: int = 4096, **question: Any) -> Plan:
        """The plan; its lines always add up."""
        found = self.engine.plan(architecture, self.workload(context, question))
        assert sum(line.bytes for line in found.lines) == found.total
        assert found.per_device <= found.total
        return found

    def capacity(self, architecture: Architecture, memory: int, context: int = 4096, **question: Any) -> Capacity:
        """What the engine makes of `memory` bytes a device."""
        found = self.engine.capacity(architecture, self.workload(context, question), memory)
        assert found is not None
        return found

    def workload(self, context: int, question: dict[str, Any]) -> Workload:
        """The workload, the engine's own settings apart."""
        args = {name: value for name, value in question.items() if name in self.own}
        rest = {name: value for name, value in question.items() if name not in self.own}
        return Workload(context=context, engine_args=args, **rest)


def sizes(plan: Plan) -> dict[tuple[str, str], int]:
    """Bytes by state and buffer, all layers and devices together."""
    found: dict[tuple[str, str], int] = {}
    for line in plan.lines:
        found[line.state, line.buffer] = found.get((line.state, line.buffer), 0) + line.bytes
    return found


PAGES = Path(__file__).parents[1] / "docs" / "engines"


def page(name: str) -> str:
    """A page of the documentation."""
    return (PAGES / f"{name}.md").read_text(encoding="utf-8")


def examples(name: str) -> list[tuple[str, str]]:
    """The page's commands, each with the first line that it says they print."""
    return re.findall(r"^\$ kvcalc (.*)\n(.*)$", page(name), re.MULTILINE)


def worked(name: str) -> list[tuple[list[int], int]]:
    """The page's tables of arithmetic: factors, and what it says they make."""
    rows = re.findall(r"^\| [^|]+ \| ([0-9x ]+) \| ([0-9,]+) \|$", page(name), re.MULTILINE)
    return [([int(factor) for factor in factors.split(" x ")], int(product.replace(",", ""))) for factors, product in rows]


def described(name: str) -> set[str]:
    """The settings that the page's table lists."""
    table = page(name).partition("## Settings")[2].partition("\n## ")[0]
    return {word for cell in re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE) for word in re.findall(r"`(\w+)`", cell)}


def first_line(command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """What a command prints first."""
    monkeypatch.setattr("sys.argv", ["kvcalc", *shlex.split(command)])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code in (0, None)
    return capsys.readouterr().out.splitlines()[0]
