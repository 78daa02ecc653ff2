"""The engine itself.

bytes = Σ over states   layers x ⌈context / page⌉ x page rows x row bytes x sequences
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from kvcalc.core.errors import EngineRejectsError
from kvcalc.engines import get_engine
from kvcalc.engines.base.engine import Engine, Setting
from kvcalc_toy.settings import SERVER_FLAGS, SETTINGS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvcalc.core.architecture import Architecture
    from kvcalc.core.plan import Plan
    from kvcalc.core.workload import Workload


class Toy(Engine):
    """Toy 0.1."""

    name: ClassVar[str] = "toy"
    version: ClassVar[str] = "0.1"
    title: ClassVar[str] = "Toy"
    aliases: ClassVar[tuple[str, ...]] = ("toy-engine",)
    settings: ClassVar[tuple[Setting, ...]] = SETTINGS
    server_flags: ClassVar[Mapping[str, str]] = SERVER_FLAGS
    rules: ClassVar[tuple[str, ...]] = ("Every sequence takes whole pages of 16 tokens.",)

    def plan(self, architecture: Architecture, workload: Workload) -> Plan:
        args = self.read_args(workload.engine_args)
        if workload.decode_context_parallel > 1:
            raise EngineRejectsError("toy does not split contexts", "leave out --dcp")
        context, page = self.context_of(architecture, workload), args["page"]
        pages = replace(workload, context=-(-context // page) * page, shared_prefix=0, engine_args={})
        plan = get_engine("ideal").plan(architecture, pages)
        return replace(plan, engine=self.name, version=self.version, args=args, context=context)
