"""MLX-LM's plan: the bytes that the cache objects of a model hold once `context` tokens are in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, assert_never

from kvcalc.core.errors import EngineRejectsError, UsageError
from kvcalc.core.formats import get_format, one_format
from kvcalc.core.plan import Line, Plan
from kvcalc.core.units import clean
from kvcalc.engines.base.engine import Engine, Setting, context_messages, default_format
from kvcalc.engines.base.families import unknown_family
from kvcalc.engines.mlx import rows
from kvcalc.engines.mlx.caches import MODEL, Arrays, Chunks, Entries, Growing, Last, Recent, Rotating
from kvcalc.engines.mlx.families import family_of, module_of
from kvcalc.engines.mlx.layers import caches_by_layer, caches_of
from kvcalc.engines.mlx.prompts import can_batch, read_prompts
from kvcalc.engines.mlx.quantised import Quantisation, read_quantisation

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture
    from kvcalc.core.workload import Workload
    from kvcalc.engines.mlx.caches import Cache, Pair
    from kvcalc.engines.mlx.families import Family

#: The types that a model class computes in, and so caches in.
FLOATS = ("fp32", "bf16", "fp16")
#: Tokens at the front that a cache of `--max-kv-size` never drops.
_KEPT = 4
_INT64 = 8


class Mlx(Engine):
    """MLX-LM on a Mac: `mlx_lm.generate`, `mlx_lm.server`."""

    name: ClassVar[str] = "mlx"
    title: ClassVar[str] = "MLX-LM"
    version: ClassVar[str] = "0.32.2"
    settings: ClassVar[tuple[Setting, ...]] = (
        Setting("max_tokens", "int", 0, "of the context, how many tokens were generated; 0: all of it is the prompt", least=0),
        Setting("max_kv_size", "int", None, "the most rows of a layer, where the model has no caches of its own", least=1),
        Setting("kv_bits", "int", None, "bits of an element of the quantized cache; none: it is not quantized"),
        Setting("kv_group_size", "int", 64, "elements that share a scale and a bias"),
        Setting("quantized_kv_start", "int", 5000, "tokens from which on the cache is quantized", least=0),
        Setting("prefill_step_size", "int", 2048, "tokens of the prompt in one forward call", least=1),
        Setting("prompt_cache_size", "int", 0, "finished prompts that the server keeps beside the running ones, at most", least=0),
        Setting("prompt_cache_bytes", "int", None, "bytes that these are trimmed to whenever a batched request comes in", least=0),
    )

    rules: ClassVar[tuple[str, ...]] = (
        "Caches grow in steps of 256 tokens: 4,097 tokens take 4,352 rows.",
        "A sliding layer keeps its window, and while the prompt is read up to its window and one step of the prefill.",
        "Many models have full caches in MLX-LM whatever their windows say: Gemma 2, Phi-3, Mixtral, Llama without layer_types.",
        "DeepSeek-V2 and MiniCPM3 cache every head, DeepSeek-V3 and Kimi their latent.",
        "max_kv_size acts only on models that have no caches of their own; on all others it does nothing, and nothing says so.",
        "kv_bits acts from 5,000 tokens on; models with sliding layers or latents stop with an error there.",
        "Requests that run together all take as many rows as the longest.",
    )

    def knows(self, family: str, class_name: str = "") -> bool:
        """Whether mlx-lm has a module for this model_type."""
        return module_of(family, class_name) is not None

    def plan(self, architecture: Architecture, workload: Workload) -> Plan:
        """The cache objects, added up. Raises EngineRejectsError, UsageError, UnsupportedArchitectureError."""
        args = self.read_args(workload.engine_args)
        context = self.context_of(architecture, workload)
        notes, warnings = context_messages(architecture, workload, context)
        family = known_family(architecture)
        ask = Ask(architecture, family, workload, args, context, _model_type(architecture, workload, notes), notes)
        ask.check()
        return ask.plan(self, warnings)


def known_family(architecture: Architecture) -> Family:
    """The family, else UnsupportedArchitectureError."""
    family = family_of(architecture)
    if family is None:
        outer = architecture.traits.outer_model_type or architecture.family
        raise unknown_family(Mlx.name, architecture, f"mlx-lm {Mlx.version} has no module of the name {clean(outer, 60)}")
    return family


@dataclass(frozen=True, slots=True)
class Ask:
    """One question: the model and its family, the settings in force, the type that the model runs in."""

    architecture: Architecture
    family: Family
    workload: Workload
    args: dict[str, Any]
    context: int
    dtype: str
    notes: list[str]

    # ── refusals ────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def check(self) -> None:
        """Raise EngineRejectsError for what MLX-LM refuses."""
        if self.args["max_tokens"] >= self.context:
            raise UsageError(
                f"max_tokens {self.args['max_tokens']:,} leaves nothing of the context of {self.context:,} tokens for the prompt",
                "a prompt has at least one token",
            )
        if self.architecture.traits.engram_layer_ids:
            raise EngineRejectsError(
                f"mlx-lm's {self.family.module} refuses a model with engram memory, which it does not have", "ask an engine that has it"
            )
        tp, pp = self.workload.tensor_parallel, self.workload.pipeline_parallel
        if self.workload.decode_context_parallel > 1:
            raise EngineRejectsError("mlx-lm has no decode context parallelism", "leave it out")
        if tp > 1 and pp > 1:
            raise EngineRejectsError("mlx-lm splits a model by its heads or by its layers, never both", "leave one of them out")
        if tp > 1 and not self.family.shards:
            raise EngineRejectsError(
                f"mlx-lm's {self.family.module} has no `shard`: tensor parallel size {tp} does not load it", "use one machine"
            )
        if pp > 1 and not self.family.pipelines:
            raise EngineRejectsError(
                f"mlx-lm's {self.family.module} has no `pipeline`: pipeline parallel size {pp} does not load it", "use one machine"
            )
        if pp > self.architecture.layers.count:
            raise EngineRejectsError(f"pipeline parallel size {pp} is more than the model's {self.architecture.layers.count} layers")

    # ── the plan ────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def plan(self, engine: Mlx, warnings: list[str]) -> Plan:
        """Lines and their sums."""
        quantisation = read_quantisation(self.args)
        schedule = self._schedule(self.context)
        caches = self._caches()
        if quantisation is not None:
            quantisation.check(self.family, caches, schedule, self.notes)
        lines = self._lines(caches, schedule, quantisation)
        sequences, tp = self.workload.sequences, self.workload.tensor_parallel
        running = sum(line.bytes for line in lines)
        batched, prompts = can_batch(caches, self.args), read_prompts(self.args)
        kept = prompts.lines(lines, self.context, sequences, batched=batched)
        self.notes.extend(prompts.notes(caches, self.context, batched=batched))
        stored = sum(line.bytes for line in kept)
        later = self._schedule(self.context + 1, generated=self.args["max_tokens"] + 1)
        alone = running // sequences
        grown = sum(line.bytes for line in self._lines(caches, later, quantisation)) // sequences
        self._say(caches, schedule)
        return Plan(
            engine=engine.name,
            version=engine.version,
            args=self.args,
            kv_dtype=quantisation.name if quantisation and quantisation.acts(schedule) else self.dtype,
            context=self.context,
            lines=(*lines, *kept, *self._peak(caches, schedule)),
            per_device=self._fullest(caches, schedule, quantisation) if self.workload.pipeline_parallel > 1 else (running + stored) // tp,
            per_sequence=alone,
            per_token=sum(layers * self._per_token(cache, quantisation, schedule) for cache, layers in caches.items()),
            growth_per_token=grown - alone,
            fixed=sum(line.bytes for line in lines if line.fixed) // sequences,
            notes=tuple(self.notes),
            warnings=tuple(warnings),
        )

    def _schedule(self, context: int, *, generated: int | None = None) -> rows.Schedule:
        return rows.Schedule(context, self.args["max_tokens"] if generated is None else generated, self.args["prefill_step_size"])

    def _caches(self) -> dict[Cache, int]:
        return self._limited(caches_of(self.architecture, self.family))

    def _limited(self, caches: dict[Cache, int]) -> dict[Cache, int]:
        """`--max-kv-size` makes rotating caches of plain ones, on modules without caches of their own."""
        most = self.args["max_kv_size"]
        if most is None or self.family.own_cache:
            return caches
        return {Rotating(cache.pair, most) if isinstance(cache, Growing) else cache: layers for cache, layers in caches.items()}

    def _lines(self, caches: dict[Cache, int], schedule: rows.Schedule, quantisation: Quantisation | None) -> list[Line]:
        found: list[Line] = []
        for cache, layers in caches.items():
            if isinstance(cache, Arrays):
                found += self._arrays(cache, layers)
                continue
            if isinstance(cache, Recent | Entries | Last):
                found.append(self._other(cache, layers, schedule))
                continue
            held = cache.rows(schedule)
            pair = cache.pair
            for name, width in zip(pair.names, (pair.key, pair.value), strict=True):
                if not width:
                    continue
                row, stored = self._part(cache, width, quantisation, schedule)
                copies = self._copies(pair.split, pair.heads, pair.state)
                found.append(
                    Line(
                        state=pair.state,
                        layers=layers,
                        buffer=name,
                        width=pair.heads * width,
                        format=stored,
                        slots=held,
                        bytes=layers * held * pair.heads * row * copies * self.workload.sequences,
                        formula=f"{layers} layers x {held:,} rows x {pair.heads * row:,} B" + self._times(copies),
                    )
                )
        return found

    def _arrays(self, cache: Arrays, layers: int) -> list[Line]:
        found = []
        for tensor in cache.tensors:
            stored = self.dtype if tensor.format == MODEL else tensor.format
            size = get_format(stored, "dtype").row_bytes(tensor.elements, 1)
            copies = self._copies(tensor.split, tensor.elements, cache.state)
            found.append(
                Line(
                    state=cache.state,
                    layers=layers,
                    buffer=tensor.name,
                    width=tensor.elements,
                    format=stored,
                    slots=1,
                    bytes=layers * size * copies * self.workload.sequences,
                    formula=f"{layers} layers x {size:,} B" + self._times(copies),
                    fixed=True,
                )
            )
        return found

    def _other(self, cache: Recent | Entries | Last, layers: int, schedule: rows.Schedule) -> Line:
        """A cache of another kind than K and V; every rank holds all of it."""
        copies, context = self.workload.tensor_parallel, schedule.context
        if isinstance(cache, Recent):
            state, buffer, width, stored, held = "token_ids", "ids", 1, "int64", min(context, cache.most)
            size = held * _INT64
        elif isinstance(cache, Last):
            state, buffer, width, stored, held = "latent", "latent", cache.width, self.dtype, min(context, cache.window)
            size = held * get_format(stored, "dtype").row_bytes(width, 1)
        else:
            state, buffer, width, stored, held = cache.state, cache.name, cache.width, "fp32", context // cache.ratio
            size = get_format(stored, "dtype").row_bytes(cache.elements(context), 1)
        return Line(
            state=state,
            layers=layers,
            buffer=buffer,
            width=width,
            format=stored,
            slots=held,
            bytes=layers * size * copies * self.workload.sequences,
            formula=f"{layers} layers x {size:,} B" + self._times(copies),
        )

    def _times(self, copies: int) -> str:
        found = f" x {self.workload.sequences} sequences" if self.workload.sequences > 1 else ""
        return found + (f" x {copies} ranks" if copies > 1 else "")

    def _copies(self, split: bool, count: int, what: str) -> int:
        tp = self.workload.tensor_parallel
        if not split:
            return tp
        if count % tp:
            raise EngineRejectsError(
                f"mlx-lm cannot split the {count} KV heads of {what} attention over {tp} ranks", f"choose a size that divides {count}"
            )
        return 1

    def _part(self, cache: Cache, width: int, quantisation: Quantisation | None, schedule: rows.Schedule) -> tuple[int, str]:
        """Bytes of one head's row, and the name of the format."""
        if quantisation is not None and quantisation.acts(schedule) and quantisation.reaches(cache):
            return quantisation.row_bytes(width, self.dtype), quantisation.name
        return get_format(self.dtype, "dtype").row_bytes(width, 1), self.dtype

    def _row(self, cache: Growing | Rotating | Chunks, quantisation: Quantisation | None, schedule: rows.Schedule) -> int:
        pair: Pair = cache.pair
        return pair.heads * sum(self._part(cache, width, quantisation, schedule)[0] for width in (pair.key, pair.value) if width)

    def _per_token(self, cache: Cache, quantisation: Quantisation | None, schedule: rows.Schedule) -> int:
        """What one token takes in this cache while it is in it."""
        match cache:
            case Growing() | Rotating() | Chunks():
                return self._row(cache, quantisation, schedule)
            case Last():
                return get_format(self.dtype, "dtype").row_bytes(cache.width, 1)
            case Entries():
                return -(-get_format("fp32", "dtype").row_bytes(cache.width, 1) // cache.ratio)
            case Recent():
                return _INT64
            case Arrays():
                return 0
            case _:
                assert_never(cache)

    def _fullest(self, caches: dict[Cache, int], schedule: rows.Schedule, quantisation: Quantisation | None) -> int:
        """Bytes of the fullest rank of a pipeline: contiguous layers from the last rank on, the low ranks one more each."""
        one = {cache: sum(line.bytes for line in self._lines({cache: 1}, schedule, quantisation)) for cache in caches}
        layers = [
            sum(one[cache] for cache in self._limited(dict.fromkeys(kept, 1))) for kept in caches_by_layer(self.architecture, self.family)
        ]
        size = self.workload.pipeline_parallel
        base, extra = divmod(len(layers), size)
        most, start = 0, 0
        for rank in reversed(range(size)):
            end = start + base + (rank < extra)
            most, start = max(most, sum(layers[start:end])), end
        return most

    # ── what is said beside it ──────────────────────────────────────────────────────────────────────────────────────────────

    def _peak(self, caches: dict[Cache, int], schedule: rows.Schedule) -> list[Line]:
        """A line of no bytes of its own: what the rotating caches hold more at the end of the prefill."""
        found: list[Line] = []
        for cache, layers in caches.items():
            if not isinstance(cache, Rotating):
                continue
            most, held = rows.prefill_peak(schedule.segments[:-1], cache.window), cache.rows(schedule)
            if most <= held:
                continue
            more = layers * (most - held) * self._row(cache, None, schedule) * self.workload.sequences
            found.append(
                Line(
                    state="prefill_peak",
                    layers=layers,
                    buffer=cache.pair.state,
                    width=cache.pair.heads * (cache.pair.key + cache.pair.value),
                    format=self.dtype,
                    slots=most,
                    bytes=0,
                    formula=f"not in the total: {most:,} rows until the first token, {more:,} B more",
                )
            )
            self.notes.append(
                f"while the prompt is read, {layers} layers hold up to {most:,} rows instead of {held:,}: {more:,} B more than the total, "
                f"until the first token (less with a smaller prefill_step_size)"
            )
        return found

    def _say(self, caches: dict[Cache, int], schedule: rows.Schedule) -> None:
        most = self.args["max_kv_size"]
        if most is not None and self.family.own_cache:
            self.notes.append(f"max_kv_size does nothing here: mlx-lm's {self.family.module} makes its own caches and never reads it")
        elif most is not None:
            self.notes.append(f"every layer keeps at most {most:,} rows, the first {_KEPT} tokens always")
        if self.family.windows == "ignored" and any(kind.kind in ("sliding", "chunked") for kind in self.architecture.states):
            self.notes.append(f"mlx-lm's {self.family.module} gives every layer a full cache, whatever the config says of windows")
        if self.workload.sequences > 1:
            self.notes.append("one continuous batch: every sequence has as many rows as the longest")
            if not can_batch(caches, self.args):
                why = "its caches cannot be merged" if self.args["kv_bits"] is None else "kv_bits ends batching"
                self.notes.append(f"mlx_lm.server runs such requests one at a time: {why}")
        if self.workload.shared_prefix:
            self.notes.append("mlx-lm shares no prefix among running sequences: each holds its own copy")
        if schedule.generated == 0 and any(isinstance(cache, Rotating) for cache in caches):
            self.notes.append("all of the context is taken as the prompt (max_tokens 0)")


def _model_type(architecture: Architecture, workload: Workload, notes: list[str]) -> str:
    """The type that the model computes in. Raises EngineRejectsError for another format."""
    if workload.kv_dtype != "auto":
        name = get_format(one_format(workload.kv_dtype, "mlx")).name
        if name not in FLOATS:
            raise EngineRejectsError(
                f"mlx-lm caches in the type that the model computes in, and {name} is not one of " + ", ".join(FLOATS),
                "for fewer bits add --engine-arg kv_bits=4 or 8",
            )
        notes.append(f"the cache follows the type of the model's weights or of their scales: {name}")
        return name
    said, assumed = default_format(architecture)
    if assumed:
        notes.append(assumed)
    name = get_format(said, "dtype").name
    if name not in FLOATS:
        raise EngineRejectsError(
            f"the config's dtype is {name}, and mlx-lm computes in one of " + ", ".join(FLOATS), "say which with --kv-dtype"
        )
    return name
