"""SGLang as kvcalc plans it: the pools that a context needs, and what a server makes of a memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from kvcalc.core.errors import EngineRejectsError
from kvcalc.core.plan import Capacity, Plan
from kvcalc.core.states import Chunked, Sliding
from kvcalc.core.units import clean
from kvcalc.core.workload import Workload
from kvcalc.engines.base.engine import Engine, Fitting, context_messages
from kvcalc.engines.base.memo import per_model
from kvcalc.engines.sglang.deepseek_v4 import DeepSeekV4
from kvcalc.engines.sglang.dtypes import FOUR_BITS, model_format
from kvcalc.engines.sglang.families import FAMILIES, family_of
from kvcalc.engines.sglang.host import notes as host_notes
from kvcalc.engines.sglang.lines import PoolLayout, V4Layout
from kvcalc.engines.sglang.pools import read_pools
from kvcalc.engines.sglang.recurrent import read_slots
from kvcalc.engines.sglang.server import check_context, longest, resolve
from kvcalc.engines.sglang.settings import SERVER_FLAGS, SETTINGS
from kvcalc.engines.sglang.sizing import Sizer, Sizes, ceil_page, floor_page

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvcalc.core.architecture import Architecture
    from kvcalc.engines.base.engine import Setting
    from kvcalc.engines.sglang.pools import Pools
    from kvcalc.engines.sglang.recurrent import Slots
    from kvcalc.engines.sglang.server import Server


class Pooled(NamedTuple):
    """A server with what sizes its pools and what lays them out: for any context and number of sequences."""

    server: Server
    sizer: Sizer | DeepSeekV4
    layout: PoolLayout | V4Layout


@dataclass(frozen=True, slots=True)
class Asked:
    """One question to a server: a context, and how many sequences of it."""

    architecture: Architecture
    workload: Workload
    context: int
    pooled: Pooled

    @property
    def server(self) -> Server:
        """The server that is asked."""
        return self.pooled.server

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

    def spare(self, sizes: Sizes) -> int:
        """Tokens that stay free where the sequences run at once: their tokens, a window and a page each, a request each; below 0 where not."""
        server, sizer, sequences = self.server, self.pooled.sizer, self.sequences
        alone, held = self.tokens(self.context, 1), self.tokens(self.context, sequences)
        found = min(sizes.tokens - held, (sizes.requests - sequences) * alone)
        if sizes.sliding is None:
            return found
        return min(found, sizes.sliding - min(alone, sizer.window + server.page) * sequences)


@dataclass(frozen=True, slots=True)
class SglangFitting(Fitting):
    """What one server admits: nothing beyond the model's maximum."""

    pooled: Pooled

    @property
    def grain(self) -> int:
        """A page, over the ranks that share its tokens."""
        return self.pooled.server.page * self.pooled.server.spread

    def plan(self, workload: Workload) -> Plan:
        """The plan of the asked sequences; what the host holds goes by the pool of the whole memory, and is said with the capacity."""
        context = self.engine.context_of(self.architecture, workload)
        check_context(self.architecture, context)
        return plan(Asked(self.architecture, workload, context, self.pooled), host=False)

    def left(self, context: int, sequences: int) -> int:
        """Tokens of the pools that stay free."""
        if context > longest(self.architecture):
            return -1
        try:
            sizes = self.pooled.sizer.from_memory(self.memory, context)
        except EngineRejectsError:
            return -1
        return Asked(self.architecture, self._asked(context, sequences), context, self.pooled).spare(sizes)

    def admits(self, context: int, sequences: int) -> bool:
        """That many sequences of that length run at once."""
        return self.left(context, sequences) >= 0


class Sglang(Engine):
    """SGLang 0.5.23.

        pool       size + page_size rows of every tensor      the extra page takes the writes of padded tokens
        capacity   memory // bytes of a token, in whole pages

    An estimate is the pools of a server whose --max-total-tokens is the context times the sequences, in whole pages; index
    tables are left out. A fit starts from the memory for all pools of one rank, recurrent state included.
    """

    name: ClassVar[str] = "sglang"
    title: ClassVar[str] = "SGLang"
    version: ClassVar[str] = "0.5.23"
    settings: ClassVar[tuple[Setting, ...]] = SETTINGS
    server_flags: ClassVar[Mapping[str, str]] = SERVER_FLAGS

    def knows(self, family: str, class_name: str = "") -> bool:  # noqa: ARG002  the row of a family says its class
        """The family has a row in families.py."""
        return family in FAMILIES

    def plan(self, architecture: Architecture, workload: Workload) -> Plan:
        """The pools that hold the asked sequences. Raises EngineRejectsError, UnsupportedArchitectureError, UsageError."""
        return plan(self._asked(architecture, workload), host=True)

    def capacity(self, architecture: Architecture, workload: Workload, kv_memory: int) -> Capacity:
        """What SGLang makes of `kv_memory` bytes a rank: tokens, page size, requests, sliding tokens and state slots."""
        asked = self._asked(architecture, workload)
        server = asked.server
        try:
            sizes = asked.pooled.sizer.from_memory(kv_memory, asked.context)
        except EngineRejectsError as error:
            return Capacity(fits=False, tokens=0, concurrency=0, block_size=server.page, warnings=(error.message,))
        return Capacity(
            fits=asked.spare(sizes) >= 0,
            tokens=sizes.tokens * server.spread,
            concurrency=sizes.requests,
            block_size=server.page,
            sliding_tokens=sizes.sliding,
            state_slots=sizes.slots,
            notes=(*_notes(asked), *_host_notes(asked, sizes.tokens)),
        )

    def fitting(self, architecture: Architecture, workload: Workload, kv_memory: int) -> SglangFitting:
        """`kv_memory` bytes a rank, to be asked again and again."""
        return SglangFitting(self, architecture, workload, kv_memory, pooled(architecture, workload, self.read_args(workload.engine_args)))

    def context_of(self, architecture: Architecture, workload: Workload) -> int:
        """The context in force: the workload's, else what SGLang takes for the model's maximum."""
        if workload.context is not None:
            return super().context_of(architecture, workload)
        workload.check_prefix(longest(architecture))
        return longest(architecture)

    def _asked(self, architecture: Architecture, workload: Workload) -> Asked:
        args, context = self.read_args(workload.engine_args), self.context_of(architecture, workload)
        found = pooled(architecture, workload, args)
        check_context(architecture, context)
        return Asked(architecture, workload, context, found)


def plan(asked: Asked, *, host: bool) -> Plan:
    """The pools that hold the asked sequences; with `host`, a note of the second tier beside them. Raises all that SGLang refuses."""
    context, layout = asked.context, asked.pooled.layout
    notes, warnings = context_messages(asked.architecture, asked.workload, context)
    notes += _notes(asked)
    sizes = _sizes(asked, notes, warnings)
    alone = _alone(asked, context)
    found = layout.allocate(sizes, alone)
    one = layout.share(alone)
    return Plan(
        engine=Sglang.name,
        version=Sglang.version,
        args=_in_force(asked, sizes),
        kv_dtype=asked.server.kv.name,
        context=context,
        lines=found.lines,
        per_device=max(found.ranks),
        per_sequence=one.bytes,
        per_token=layout.per_token,
        growth_per_token=layout.share(_alone(asked, context + 1)).bytes - one.bytes,
        fixed=one.fixed,
        notes=tuple(dict.fromkeys((*notes, *(_host_notes(asked, sizes.tokens) if host else ())))),
        warnings=tuple(warnings),
    )


def pooled(architecture: Architecture, workload: Workload, args: Mapping[str, Any]) -> Pooled:
    """The server of a question, whatever its context and sequences. Raises all that SGLang refuses."""
    ranks = (workload.tensor_parallel, workload.pipeline_parallel, workload.decode_context_parallel)
    return _pooled(architecture, ranks, workload.kv_dtype, workload.gpu, tuple(args.items()))


@per_model
def _pooled(
    architecture: Architecture, ranks: tuple[int, int, int], kv_dtype: str, gpu: str | None, args: tuple[tuple[str, Any], ...]
) -> Pooled:
    tensor, pipeline, decode = ranks
    workload = Workload(tensor_parallel=tensor, pipeline_parallel=pipeline, decode_context_parallel=decode, kv_dtype=kv_dtype, gpu=gpu)
    server = resolve(architecture, workload, dict(args))
    if server.is_v4:
        v4 = DeepSeekV4(architecture, server)
        return Pooled(server, v4, V4Layout(v4))
    pools, slots = read_pools(architecture, server), read_slots(architecture, server)
    return Pooled(server, Sizer(architecture, server, pools, slots), PoolLayout(server, pools, slots))


def _sizes(asked: Asked, notes: list[str], warnings: list[str]) -> Sizes:
    """The sizes of a server that was told to hold the asked tokens, and the messages that go with them."""
    server, needed = asked.server, asked.tokens(asked.context, asked.sequences)
    limit = server.args["max_total_tokens"]
    if limit is not None and floor_page(limit, server.page) < needed:
        warnings.append(f"the pool of max_total_tokens {limit:,} is smaller than the {needed:,} tokens that are asked for at once")
    tokens = needed if limit is None else floor_page(limit, server.page)
    if not tokens:
        raise EngineRejectsError(f"max_total_tokens {limit} is less than a page of {server.page}", f"at least {server.page}")
    if limit is None:
        least = asked.pooled.sizer.least_tokens()
        if tokens < least:
            notes.append(f"SGLang does not start with fewer than {least:,} tokens: its sliding pool must hold a window and a page")
            tokens = least
    slots = _slots(asked)
    if slots is not None and slots < asked.sequences * server.slots_per_request:
        warnings.append(
            f"{slots} slots of recurrent state serve {slots // server.slots_per_request} of {asked.sequences} sequences at once"
        )
    return asked.pooled.sizer.from_tokens(tokens, asked.sequences, slots, asked.context)


def _slots(asked: Asked) -> int | None:
    """Slots of recurrent state: the flag's, else as many as the sequences need."""
    if isinstance(asked.pooled.sizer, DeepSeekV4) or not asked.pooled.sizer.slots:
        return None
    server = asked.server
    told: int | None = server.args["max_mamba_cache_size"]
    if told is not None:
        return max(1, told // server.attn_dp)
    requests = server.requests if server.args["max_running_requests"] is not None and server.requests else asked.sequences
    return requests * server.slots_per_request


def _alone(asked: Asked, context: int) -> Sizes:
    """What one sequence takes of every pool."""
    tokens = asked.tokens(context, 1)
    slots = None if _slots(asked) is None else asked.server.slots_per_request
    return Sizes(tokens, asked.pooled.sizer.sliding_share(tokens), 1, slots)


def _notes(asked: Asked) -> list[str]:
    server, architecture = asked.server, asked.architecture
    _, said = model_format(architecture)
    found = [*server.notes, *([said] if said else []), *_whose_code(architecture)]
    windows = sum(layers for state, layers in architecture.states.items() if isinstance(state, Sliding | Chunked))
    if windows and not server.windows:
        why = "the pool of windows is turned off" if server.rule.windows is not None else "SGLang gives this model no pool of windows"
        found.append(f"{windows} sliding layers are stored in full length: {why}")
    if server.windows and server.flag in FOUR_BITS:
        found.append(f"SGLang's pools of windows have no packed layout for {server.flag}: every element takes a byte")
    if asked.workload.shared_prefix and not server.radix:
        found.append("the shared prefix is stored once for every sequence: there is no radix cache")
    if server.args["mem_fraction_static"] is not None:
        found.append("mem_fraction_static decides how much memory there is for the pools, not what they hold")
    if server.draft_tokens and not server.draft_layers and architecture.draft is not None:
        found.append("SGLang's budget does not count this model's draft layers: its config has no num_nextn_predict_layers")
    return found


def _whose_code(architecture: Architecture) -> list[str]:
    """A note where SGLang has no class of its own for the model's family."""
    if family_of(architecture).code != "unsaid":
        return []
    return [
        f"SGLang has no class of its own for {clean(architecture.family)}, and transformers' does not say that it runs there: it may not load"
    ]


def _host_notes(asked: Asked, tokens: int) -> list[str]:
    pools: Pools | None = getattr(asked.pooled.sizer, "pools", None)
    slots: Slots | None = getattr(asked.pooled.sizer, "slots", None)
    return host_notes(asked.server, pools, slots, tokens)


def _in_force(asked: Asked, sizes: Sizes) -> dict[str, Any]:
    """Every setting, with what SGLang made of the ones that were left out."""
    server = asked.server
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
