"""The engine itself: a plan for a context, and the capacity of a memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from kvcalc.core.errors import EngineRejectsError
from kvcalc.core.plan import Capacity, Plan
from kvcalc.engines.base.engine import Engine, Fitting, context_messages
from kvcalc.engines.sglang import classes, host
from kvcalc.engines.sglang.deepseek_v4 import DeepSeekV4
from kvcalc.engines.sglang.dtypes import FOUR_BITS, model_format
from kvcalc.engines.sglang.lines import PoolLayout, V4Layout
from kvcalc.engines.sglang.pools import read_pools
from kvcalc.engines.sglang.recurrent import read_slots
from kvcalc.engines.sglang.server import longest, resolve
from kvcalc.engines.sglang.settings import SETTINGS
from kvcalc.engines.sglang.sizing import Sizer, Sizes, ceil_page, floor_page

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvcalc.core.architecture import Architecture
    from kvcalc.core.workload import Workload
    from kvcalc.engines.base.engine import Setting
    from kvcalc.engines.sglang.pools import Pools
    from kvcalc.engines.sglang.recurrent import Slots
    from kvcalc.engines.sglang.server import Server


@dataclass(frozen=True, slots=True)
class Case:
    """One question: the model, the server that answers it, and what sizes and lays out its pools."""

    architecture: Architecture
    workload: Workload
    server: Server
    sizer: Sizer | DeepSeekV4
    layout: PoolLayout | V4Layout

    @property
    def sequences(self) -> int:
        """Sequences of the fullest attention group."""
        return -(-self.workload.sequences // self.server.attn_dp)

    def tokens(self, context: int, sequences: int) -> int:
        """Tokens of the pool on one rank: whole pages of every sequence, those of a cached prefix once."""
        server = self.server
        pages = ceil_page(-(-context // server.spread), server.page)
        shared = min(pages, floor_page(self.workload.shared_prefix // server.spread, server.page)) if server.radix else 0
        return shared + sequences * (pages - shared)


class SglangFitting(Fitting):
    """What one server admits: nothing beyond the model's maximum."""

    def admits(self, context: int, sequences: int) -> bool:
        """That many sequences of that length run at once."""
        return context <= longest(self.architecture) and Fitting.admits(self, context, sequences)


class Sglang(Engine):
    """SGLang 0.5.23.

        pool       size + page_size rows of every tensor      the extra page takes the writes of padded tokens
        capacity   memory // bytes of a token, in whole pages

    An estimate is the pools of a server whose --max-total-tokens is the context times the sequences, in whole pages; index
    tables are left out. A fit starts from the memory for all pools of one rank, recurrent state included.
    """

    name: ClassVar[str] = "sglang"
    version: ClassVar[str] = "0.5.23"
    settings: ClassVar[tuple[Setting, ...]] = SETTINGS

    def plan(self, architecture: Architecture, workload: Workload) -> Plan:
        """The pools that hold the asked sequences. Raises EngineRejectsError, UnsupportedArchitectureError, UsageError."""
        case = self._case(architecture, workload)
        context = case.server.context
        notes, warnings = context_messages(architecture, workload, context)
        notes += _notes(case)
        sizes = _sizes(case, notes, warnings)
        alone = _alone(case, context)
        found = case.layout.allocate(sizes, alone)
        one = case.layout.allocate(alone).share
        return Plan(
            engine=self.name,
            version=self.version,
            args=_in_force(case, sizes),
            kv_dtype=case.server.kv.name,
            context=context,
            lines=found.lines,
            per_device=max(found.ranks),
            per_sequence=one.bytes,
            per_token=case.layout.per_token,
            growth_per_token=case.layout.allocate(_alone(case, context + 1)).share.bytes - one.bytes,
            fixed=one.fixed,
            notes=tuple(dict.fromkeys((*notes, *_host_notes(case, sizes)))),
            warnings=tuple(warnings),
        )

    def capacity(self, architecture: Architecture, workload: Workload, kv_memory: int) -> Capacity:
        """What SGLang makes of `kv_memory` bytes a rank: tokens, page size, requests, sliding tokens and state slots."""
        case = self._case(architecture, workload)
        server = case.server
        try:
            sizes = case.sizer.from_memory(kv_memory)
        except EngineRejectsError as error:
            return Capacity(fits=False, tokens=0, concurrency=0, block_size=server.page, warnings=(error.message,))
        return Capacity(
            fits=_fits(case, sizes),
            tokens=sizes.tokens * server.spread,
            concurrency=sizes.requests,
            block_size=server.page,
            sliding_tokens=sizes.sliding,
            state_slots=sizes.slots,
            notes=tuple(_notes(case)),
        )

    def fitting(self, architecture: Architecture, workload: Workload, kv_memory: int) -> SglangFitting:
        """`kv_memory` bytes a rank, to be asked again and again."""
        return SglangFitting(self, architecture, workload, kv_memory)

    def context_of(self, architecture: Architecture, workload: Workload) -> int:
        """The context in force: the workload's, else what SGLang takes for the model's maximum."""
        if workload.context is not None:
            return super().context_of(architecture, workload)
        workload.check_prefix(longest(architecture))
        return longest(architecture)

    def _case(self, architecture: Architecture, workload: Workload) -> Case:
        return read_case(architecture, workload, self.read_args(workload.engine_args), self.context_of(architecture, workload))


def read_case(architecture: Architecture, workload: Workload, args: Mapping[str, Any], context: int) -> Case:
    """The server of a question, and what sizes and lays out its pools. Raises all that SGLang refuses."""
    server = resolve(architecture, workload, args, context)
    if server.is_v4:
        v4 = DeepSeekV4(architecture, server)
        return Case(architecture, workload, server, v4, V4Layout(v4))
    pools, slots = read_pools(architecture, server), read_slots(architecture, server)
    return Case(architecture, workload, server, Sizer(architecture, server, pools, slots), PoolLayout(server, pools, slots))


def _sizes(case: Case, notes: list[str], warnings: list[str]) -> Sizes:
    """The sizes of a server that was told to hold the asked tokens, and the messages that go with them."""
    server, needed = case.server, case.tokens(case.server.context, case.sequences)
    limit = server.args["max_total_tokens"]
    if limit is not None and floor_page(limit, server.page) < needed:
        warnings.append(f"the pool of max_total_tokens {limit:,} is smaller than the {needed:,} tokens that are asked for at once")
    tokens = needed if limit is None else floor_page(limit, server.page)
    if not tokens:
        raise EngineRejectsError(f"max_total_tokens {limit} is less than a page of {server.page}", f"at least {server.page}")
    if limit is None:
        least = case.sizer.least_tokens()
        if tokens < least:
            notes.append(f"SGLang does not start with fewer than {least:,} tokens: its sliding pool must hold a window and a page")
            tokens = least
    slots = _slots(case)
    if slots is not None and slots < case.sequences * server.slots_per_request:
        warnings.append(f"{slots} slots of recurrent state serve {slots // server.slots_per_request} of {case.sequences} sequences at once")
    return case.sizer.from_tokens(tokens, case.sequences, slots)


def _slots(case: Case) -> int | None:
    """Slots of recurrent state: the flag's, else as many as the sequences need."""
    if isinstance(case.sizer, DeepSeekV4) or not case.sizer.slots:
        return None
    server = case.server
    asked: int | None = server.args["max_mamba_cache_size"]
    if asked is not None:
        return max(1, asked // server.attn_dp)
    requests = server.requests if server.args["max_running_requests"] is not None and server.requests else case.sequences
    return requests * server.slots_per_request


def _alone(case: Case, context: int) -> Sizes:
    """What one sequence takes of every pool."""
    tokens = case.tokens(context, 1)
    slots = None if _slots(case) is None else case.server.slots_per_request
    return Sizes(tokens, case.sizer.sliding_share(tokens), 1, slots)


def _fits(case: Case, sizes: Sizes) -> bool:
    """Whether the asked sequences run at once: their tokens, a window and a page each, a request and its slots."""
    server = case.server
    sliding = min(case.tokens(server.context, 1), case.sizer.window + server.page) * case.sequences
    return (
        case.tokens(server.context, case.sequences) <= sizes.tokens
        and case.sequences <= sizes.requests
        and (sizes.sliding is None or sliding <= sizes.sliding)
    )


def _notes(case: Case) -> list[str]:
    server, architecture = case.server, case.architecture
    _, said = model_format(architecture)
    found = [*server.notes, *([said] if said else [])]
    windows = sum(layers for state, layers in architecture.states.items() if state.kind in ("sliding", "chunked"))
    if windows and not server.windows:
        why = (
            "the pool of windows is turned off"
            if server.class_name in classes.WINDOW_POOL
            else "SGLang gives this model no pool of windows"
        )
        found.append(f"{windows} sliding layers are stored in full length: {why}")
    if server.windows and server.flag in FOUR_BITS:
        found.append(f"SGLang's pools of windows have no packed layout for {server.flag}: every element takes a byte")
    if case.workload.shared_prefix and not server.radix:
        found.append("the shared prefix is stored once for every sequence: there is no radix cache")
    if server.args["mem_fraction_static"] is not None:
        found.append("mem_fraction_static decides how much memory there is for the pools, not what they hold")
    if server.draft_tokens and not server.draft_layers and architecture.draft is not None:
        found.append("SGLang's budget does not count this model's draft layers: its config has no num_nextn_predict_layers")
    return found


def _host_notes(case: Case, sizes: Sizes) -> list[str]:
    pools: Pools | None = getattr(case.sizer, "pools", None)
    slots: Slots | None = getattr(case.sizer, "slots", None)
    return host.notes(case.server, pools, slots, sizes.tokens)


def _in_force(case: Case, sizes: Sizes) -> dict[str, Any]:
    """Every setting, with what SGLang made of the ones that were left out."""
    server = case.server
    return dict(server.args) | {
        "page_size": server.page,
        "attention_backend": server.args["attention_backend"] or server.decode,
        "chunked_prefill_size": server.chunk * server.attn_dp if server.chunk > 0 else server.chunk,
        "attn_dp_size": server.attn_dp,
        "disable_radix_cache": not server.radix,
        "max_running_requests": sizes.requests * server.attn_dp,
        "max_total_tokens": sizes.tokens,
        "swa_full_tokens_ratio": server.ratio if server.windows else None,
        "max_mamba_cache_size": None if sizes.slots is None else sizes.slots * server.attn_dp,
        "mamba_radix_cache_strategy": server.strategy,
        "speculative_num_draft_tokens": server.draft_tokens or None,
    }
