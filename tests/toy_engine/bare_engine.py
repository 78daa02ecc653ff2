"""An engine in one module that says nothing of itself but what it must."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from kvcalc.engines import get_engine
from kvcalc.engines.base.engine import Engine, Setting

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture
    from kvcalc.core.plan import Plan
    from kvcalc.core.workload import Workload


class Bare(Engine):
    """Bare: the bytes of the mathematics under another name."""

    name: ClassVar[str] = "bare"
    version: ClassVar[str] = "0.1"
    settings: ClassVar[tuple[Setting, ...]] = ()

    def plan(self, architecture: Architecture, workload: Workload) -> Plan:
        args = self.read_args(workload.engine_args)
        return replace(get_engine("ideal").plan(architecture, workload), engine=self.name, version=self.version, args=args)
