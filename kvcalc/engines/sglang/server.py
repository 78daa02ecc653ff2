"""What SGLang makes of its flags for one model on one kind of card, before any memory is divided.

    given flags ─▶ model defaults ─▶ cache type ─▶ attention backend and page size ─▶ limits        arg_groups/pipeline.py

Source: SGLang 0.5.23, arg_groups/{pipeline,overrides,model_hook,memory_hook,speculative_hook,deepseek_v4_hook,mamba_hook}.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvcalc.core.errors import EngineRejectsError, UsageError
from kvcalc.core.states import Full, Index, Latent, Sliding
from kvcalc.core.units import GIB, clean
from kvcalc.engines.base.engine import check_query_heads
from kvcalc.engines.base.windows import window_of
from kvcalc.engines.sglang import backends
from kvcalc.engines.sglang.classes import WindowPool, rule_of
from kvcalc.engines.sglang.dtypes import FP8, cache_type, has_sinks, model_format
from kvcalc.engines.sglang.families import class_of
from kvcalc.hardware import get_gpu

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvcalc.core.architecture import Architecture
    from kvcalc.core.formats import Format
    from kvcalc.core.workload import Workload
    from kvcalc.engines.sglang.classes import ClassRule, StateRule

#: Compute capability x 10 of the card that is assumed where none is given, and its prefill chunk: an 80 GB Hopper.
HOPPER, HOPPER_CHUNK = 90, 8192
#: Prefill chunk by the card's memory: the first row that is larger, in GiB (memory_hook.py).
CHUNKS = ((20, 2048), (60, 4096), (160, 8192))
LARGEST_CHUNK = 16384
#: GiB from which SGLang calls a card large.
LARGE = 60
#: Requests at once where speculation is on, and for DeepSeek-V4 (speculative_hook.py, deepseek_v4_hook.py).
SPECULATIVE_REQUESTS, V4_REQUESTS = 48, 256
#: Tokens verified at once where speculation is on and no number is given: three steps in one chain (speculative_hook.py).
DRAFT_TOKENS = 4
#: Tokens that DeepSeek-V4's compressor rings can take back (get_compress_state_write_pad: 16 - 8 + 2).
V4_MOST_DRAFTS = 10
#: Context that SGLang assumes where a config.json names none (utils/hf_transformers/common.py).
UNNAMED_CONTEXT = 2048


@dataclass(frozen=True, slots=True)
class Server:
    """A server's settings in force.

    class_name     the model's class as SGLang compares it, and `rule` its row
    capability     compute capability x 10
    attn_tp        tensor parallel ranks inside one of `attn_dp` attention groups; `dcp` of them share a group's tokens
    page           tokens of a page
    flag, kv       the cache's type: the flag in force, and the format of a row; `model` is the model's own type
    latent         pools of latents (MLA) instead of K and V
    indexed        sparse attention over latents (DSA), with index keys; `scaled`: its fp8 rows carry scales and a bf16 rotary part
    windows        sliding layers have a pool of their own
    ratio          tokens of that pool for one of the full pool; None: DeepSeek-V4.1 sizes it by requests
    strategy       how prefixes keep recurrent state: off, plain, no_buffer, extra_buffer or extra_buffer_lazy
    requests       requests at once that one attention group was told to serve; None: as many as the pool suggests
    draft_tokens   tokens verified at once, 0 without speculation
    draft_layers   layers that speculation adds to the price of a token
    tails          pooled index keys are compressed, and each request keeps the keys and scores of its open group
    """

    class_name: str
    rule: ClassRule
    args: Mapping[str, Any]
    capability: int
    attn_tp: int
    attn_dp: int
    dcp: int
    pp: int
    prefill: str
    decode: str
    page: int
    flag: str
    kv: Format
    model: Format
    latent: bool
    indexed: bool
    scaled: bool
    windows: bool
    ratio: float | None
    radix: bool
    overlap: bool
    strategy: str
    chunk: int
    requests: int | None
    draft_tokens: int
    draft_layers: int
    tails: bool
    notes: tuple[str, ...]

    @property
    def is_v4(self) -> bool:
        """DeepSeek-V4 or V4.1, which have pools of their own."""
        return self.rule.compressed

    @property
    def every_layer_slides(self) -> bool:
        """Every layer is in the pool of windows, whatever it keeps."""
        return self.rule.windows is not None and self.rule.windows.every_layer

    @property
    def shaped_windows(self) -> bool:
        """The pool of windows has the shape of the sliding layers."""
        return self.rule.windows is not None and self.rule.windows.own_shape

    @property
    def spread(self) -> int:
        """Ranks over which decode context parallelism spreads tokens; pools of windows hold all of them on each."""
        return 1 if self.windows else self.dcp

    @property
    def ranks(self) -> int:
        """Devices of one pipeline stage."""
        return self.attn_tp * self.attn_dp

    @property
    def slots_per_request(self) -> int:
        """Slots of recurrent state that one running request may hold (kv_cache_configurator.py, _calculate_mamba_ratio)."""
        if not self.radix:
            return 1
        tracking = {"extra_buffer": 2 if self.overlap else 1, "extra_buffer_lazy": 1}
        return 3 + tracking.get(self.strategy, 0)


def resolve(architecture: Architecture, workload: Workload, args: Mapping[str, Any]) -> Server:
    """The server behind the flags, for any context and number of sequences. Raises EngineRejectsError wherever SGLang does not start."""
    name = class_of(architecture)
    rule = rule_of(name)
    notes: list[str] = []
    capability, chunk, large = _card(workload.gpu, args, notes)
    attn_tp, attn_dp = _attention_ranks(workload, args)
    check_query_heads(architecture, attn_tp)
    _check_groups(architecture, name, rule)
    draft_tokens = _draft_tokens(architecture, rule, workload, args, notes)
    radix = _radix(architecture, rule, args)
    latent, index_pool = _latents(architecture, name, rule)
    cache = cache_type(architecture, workload.kv_dtype, rule, capability, indexed=index_pool > 0)
    choice = backends.choose(
        backends.Question(
            name=name,
            rule=rule,
            generation=capability // 10,
            given=args["attention_backend"],
            page=args["page_size"],
            dtype=cache.flag,
            latent=latent,
            index_pool=index_pool,
            index_ratio=0 if latent else max((state.ratio for state in architecture.states if isinstance(state, Index)), default=0),
            asymmetric=_asymmetric(architecture),
            sinks=has_sinks(architecture, rule),
            speculates=draft_tokens > 0,
            paged_state=not radix or draft_tokens > 0 or args["mamba_radix_cache_strategy"].startswith("extra_buffer"),
            large=large,
        )
    )
    strategy = _strategy(name, rule.state, args, choice, radix=radix)
    if args["page_size"] not in (None, choice.page):
        notes.append(f"SGLang replaces page size {args['page_size']} by {choice.page} for this model and its attention backend")
    model, _ = model_format(architecture)
    overlap = not args["disable_overlap_schedule"] and strategy != "no_buffer" and workload.pipeline_parallel == 1
    return Server(
        class_name=name,
        rule=rule,
        args=args,
        capability=capability,
        attn_tp=attn_tp,
        attn_dp=attn_dp,
        dcp=workload.decode_context_parallel,
        pp=workload.pipeline_parallel,
        prefill=choice.prefill,
        decode=choice.decode,
        page=choice.page,
        flag=cache.flag,
        kv=cache.format,
        model=model,
        latent=latent,
        indexed=index_pool > 0,
        scaled=index_pool > 0 and cache.flag == FP8 and not _plain_rows(name, capability, workload.decode_context_parallel),
        windows=_windows(architecture, name, rule.windows, args),
        ratio=_ratio(architecture, rule.windows, args),
        radix=radix,
        overlap=overlap,
        strategy=strategy,
        chunk=chunk // attn_dp if chunk > 0 else chunk,
        requests=_requests(rule, args, attn_dp, draft_tokens),
        draft_tokens=draft_tokens,
        draft_layers=_next_token_layers(architecture, name, rule, args["speculative_draft_model_path"]) if draft_tokens else 0,
        tails=index_pool > 1 and architecture.traits.index_kpool_compress is True,
        notes=(*notes, *([cache.note] if cache.note else [])),
    )


def _check_groups(architecture: Architecture, name: str, rule: ClassRule) -> None:
    """Ling's model asserts that its layers come in whole groups (models/bailing_moe_linear.py, bailing_moe_v3.py)."""
    tail = architecture.traits.incomplete_group
    if tail and rule.whole_groups:
        raise EngineRejectsError(
            f"SGLang loads {name} in whole groups of layers, and {tail} of its {architecture.layers.count} layers are left over",
            "choose a number of layers that layer_group_size divides",
        )


def _card(gpu: str | None, args: Mapping[str, Any], notes: list[str]) -> tuple[int, int, bool]:
    """Compute capability, the prefill chunk that goes with the card's memory, and whether that is 60 GiB or more."""
    asked: int | None = args["chunked_prefill_size"]
    if gpu is None:
        notes.append("no GPU given: SGLang's defaults for an 80 GB Hopper card")
        return HOPPER, HOPPER_CHUNK if asked is None else asked, True
    card = get_gpu(gpu.partition(":")[0])
    if card.capability is None:
        raise EngineRejectsError(f"kvcalc knows SGLang's defaults for NVIDIA cards, and {card.id} is none", "choose an NVIDIA card")
    by_memory = next((size for limit, size in CHUNKS if card.memory < limit * GIB), LARGEST_CHUNK)
    return card.capability, by_memory if asked is None else asked, card.memory >= LARGE * GIB


def _attention_ranks(workload: Workload, args: Mapping[str, Any]) -> tuple[int, int]:
    """Tensor parallel ranks of an attention group, and the number of groups (runtime_context.py, derive_attn_tp_size)."""
    groups: int = args["attn_dp_size"]
    if args["enable_dp_attention"]:
        groups = args["dp_size"] if groups == 1 else groups
    elif args["dp_size"] > 1:
        raise EngineRejectsError(
            f"dp_size {args['dp_size']} without enable_dp_attention starts as many servers, each with its own cache",
            "ask for one of them, or set enable_dp_attention",
        )
    tp, dcp = workload.tensor_parallel, workload.decode_context_parallel
    if tp % groups:
        raise EngineRejectsError(f"{groups} attention groups do not divide the tensor parallel size {tp}")
    if (tp // groups) % dcp:
        raise EngineRejectsError(f"decode context parallel size {dcp} does not divide the {tp // groups} ranks of an attention group")
    return tp // groups, groups


def _draft_tokens(architecture: Architecture, rule: ClassRule, workload: Workload, args: Mapping[str, Any], notes: list[str]) -> int:
    given, algorithm = args["speculative_num_draft_tokens"], args["speculative_algorithm"]
    if given is None and algorithm is None:
        return 0
    if workload.pipeline_parallel > 1:
        raise EngineRejectsError("SGLang speculates over pipeline stages on prefill servers only", "use one stage, or no speculation")
    if architecture.family.startswith("deepseek_v41"):
        raise EngineRejectsError("DeepSeek-V4.1 speculates with DSpark only", "leave speculation out")
    if rule.compressed and (given or DRAFT_TOKENS) > V4_MOST_DRAFTS:
        raise EngineRejectsError(f"DeepSeek-V4 verifies at most {V4_MOST_DRAFTS} tokens at once, and {given} were asked for")
    notes.append("speculation with the model's own next-token layers, in one chain (EAGLE)")
    return int(given or DRAFT_TOKENS)


def _next_token_layers(architecture: Architecture, name: str, rule: ClassRule, draft: str | None) -> int:
    """Draft layers that SGLang prices: `num_nextn_predict_layers` of the model's config, or of the draft's where one is named.

    A model that is named as its own draft is read as one, and its class then says how many layers it has
    (spec_aux_hidden_state.py, _resolve_eagle_aux_hidden_state). Raises UsageError for another model, EngineRejectsError.
    """
    declared = architecture.traits.num_nextn_predict_layers
    value = (rule.next_token_layers if declared is None else declared) or 0
    if draft is None:
        return value
    if draft.strip("/").casefold() not in _names_of(architecture):
        raise UsageError(
            f"speculative_draft_model_path: {clean(draft, 60)} is another model than {clean(architecture.id)}, and kvcalc counts one model",
            "name the model itself, or leave it out",
        )
    found = rule.own_draft_layers or value
    if not found:
        raise EngineRejectsError(
            f"SGLang reads no draft of {name} from its own checkpoint: it has no next-token layers", "leave speculation out"
        )
    return found


def _names_of(architecture: Architecture) -> frozenset[str]:
    """What the model itself is called: `itself`, its id, its repository, and the last part of that."""
    names = ("itself", architecture.id, architecture.hub, architecture.hub.rpartition("/")[2])
    return frozenset(name.casefold() for name in names if name)


def _radix(architecture: Architecture, rule: ClassRule, args: Mapping[str, Any]) -> bool:
    """Whether prefixes are cached: some models turn it off themselves."""
    own = rule.prefixes == "never" or (rule.prefixes == "stateless" and any(state.is_recurrent for state in architecture.states))
    return not (args["disable_radix_cache"] or own)


def _latents(architecture: Architecture, name: str, rule: ClassRule) -> tuple[bool, int]:
    """Whether the pools hold latents, and how many tokens share one of their index keys (0: no sparse attention)."""
    if rule.compressed or not any(isinstance(state, Latent) for state in architecture.states):
        return False, 0
    if not rule.latent:
        raise EngineRejectsError(f"SGLang has no pool of latents for {name}", "it knows latents for the classes that it lists only")
    pools = [state.pool for state in architecture.states if isinstance(state, Index)]
    return True, max(pools, default=0) if rule.indexed else 0


def _plain_rows(name: str, capability: int, dcp: int) -> bool:
    """Whether sparse attention runs on TRT-LLM's kernels, which read rows without scales (_dsa_split_backend_resolution)."""
    desk_glm = name == "GlmMoeDsaForCausalLM" and capability // 10 == backends.SM120
    return dcp > 1 or (capability // 10 >= backends.SM100 and not desk_glm)


def _strategy(name: str, rule: StateRule | None, args: Mapping[str, Any], choice: backends.Choice, *, radix: bool) -> str:
    """How prefixes keep recurrent state. Raises EngineRejectsError for a strategy or a page size that the model cannot have."""
    asked = args["mamba_radix_cache_strategy"]
    if rule is None or not radix:
        return "off"
    if asked.startswith("extra_buffer") and rule.strategy != "extra_buffer":
        raise EngineRejectsError(f"SGLang does not support mamba_radix_cache_strategy {asked} for {name}", "use no_buffer")
    if rule.strategy == "plain":
        return "plain"
    wants_buffer = not args["disable_overlap_schedule"] or choice.paged
    found = asked if asked != "auto" else rule.strategy if wants_buffer else "no_buffer"
    if found == "no_buffer" and choice.page > 1:
        raise EngineRejectsError(f"SGLang keeps the state of {name} without a buffer, and then serves pages of 1 token, not {choice.page}")
    interval: int = args["mamba_track_interval"]
    if found != "no_buffer" and interval % choice.page:
        raise EngineRejectsError(
            f"page size {choice.page} does not divide the {interval} tokens between two snapshots of recurrent state",
            f"set mamba_track_interval to a multiple of {choice.page}",
        )
    return str(found)


def _windows(architecture: Architecture, name: str, pool: WindowPool | None, args: Mapping[str, Any]) -> bool:
    """Whether sliding layers have a pool of their own. Raises EngineRejectsError where SGLang insists on one and no layer slides."""
    if pool is None or args["disable_hybrid_swa_memory"]:
        return False
    slides = any(map(window_of, architecture.states))
    sliding = slides or pool.every_layer
    if not sliding and not pool.optional:
        raise EngineRejectsError(
            f"SGLang gives {name} a pool of windows, and no layer of this model slides", "set disable_hybrid_swa_memory"
        )
    return sliding


def _ratio(architecture: Architecture, pool: WindowPool | None, args: Mapping[str, Any]) -> float | None:
    asked: float | None = args["swa_full_tokens_ratio"]
    if asked is not None:
        if not 0 < asked <= 1:
            raise EngineRejectsError(f"swa_full_tokens_ratio {asked:g} is not between 0 and 1", "0.8 is SGLang's default")
        return asked
    if architecture.family.startswith("deepseek_v41"):
        return None
    return (pool or WindowPool()).ratio


def _requests(rule: ClassRule, args: Mapping[str, Any], groups: int, draft_tokens: int) -> int | None:
    asked: int | None = args["max_running_requests"]
    if asked is None and rule.compressed:
        asked = V4_REQUESTS
    if asked is None and draft_tokens:
        asked = SPECULATIVE_REQUESTS
    return None if asked is None else max(1, asked // groups)


def _asymmetric(architecture: Architecture) -> bool:
    """K and V vectors of different widths."""
    return any(isinstance(state, Full | Sliding) and state.value_width != state.head_dim for state in architecture.states)


def longest(architecture: Architecture) -> int:
    """What SGLang takes for the model's maximum context."""
    return architecture.max_context or UNNAMED_CONTEXT


def check_context(architecture: Architecture, context: int) -> None:
    """Raise EngineRejectsError where the model does not reach so far."""
    most = longest(architecture)
    if context > most:
        known = architecture.max_context is not None
        why = f"the model's own maximum is {most:,}" if known else f"the config names no maximum, and SGLang takes {most:,}"
        raise EngineRejectsError(f"SGLang refuses a context of {context:,} tokens: {why}", f"at most --ctx {most}")
