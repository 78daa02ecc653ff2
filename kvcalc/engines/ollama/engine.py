"""Ollama: llama.cpp's own server as a child process, with flags that Ollama chooses.

    -c num_ctx x num_parallel -np num_parallel [-ctk T -ctv T] --flash-attn on|off|auto -b num_batch -ub num_batch
    never --kv-unified, never --swa-full

    slots     pad256(num_ctx) cells each, windows pad256(window + num_batch)
    num_ctx   request or Modelfile, else by the memory of all GPUs: 47 GiB and more 262,144 · 23 GiB and more 32,768 · else 4,096;
              at most the trained context
    num_batch by num_ctx x num_parallel: beyond 32,768 2,048 · beyond 4,096 1,024 · else 512

(llm/llama_server.go, llm/server.go, server/routes.go, server/sched.go of Ollama, August 2026; its llama.cpp is b10488)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from kvcalc.core.errors import EngineRejectsError, UsageError
from kvcalc.core.formats import get_kv_format
from kvcalc.core.units import GIB
from kvcalc.engines.base.engine import Engine, Setting
from kvcalc.engines.llamacpp.architectures import architecture_name
from kvcalc.engines.llamacpp.engine import LlamaCpp, LlamaCppFitting
from kvcalc.hardware import parse_gpu

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvcalc.core.architecture import Architecture
    from kvcalc.core.plan import Capacity, Plan
    from kvcalc.core.workload import Workload
    from kvcalc.engines.llamacpp.allocation import Allocation
    from kvcalc.engines.llamacpp.engine import Request

#: Memory of all GPUs → default context (server/routes.go).
_CONTEXT_BY_MEMORY = ((47 * GIB, 262_144), (23 * GIB, 32_768), (0, 4096))
#: Tokens of all slots above which → batch (server/sched.go, generationBatchForContext of effectiveLlamaServerContext).
_BATCH_BY_CONTEXT = ((32_768, 2048), (4096, 1024), (0, 512))
#: Without flash attention on CUDA; the smaller one on cards of at most 8 GiB with more than 4,096 tokens in all slots.
_BATCH_WITHOUT_FLASH, _SMALL_BATCH, _SMALL_CARD, _SMALL_CONTEXT = 512, 256, 8 * GIB, 4096
#: Architectures that Ollama runs with one slot whatever is asked (server/sched.go).
SINGLE_SLOT = frozenset(
    ("mllama", "qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe", "qwen3next", "lfm2", "lfm2moe", "nemotron_h", "nemotron_h_moe")
)


@dataclass(frozen=True, slots=True)
class Launch:
    """What Ollama tells its llama-server.

    context, slots, batch     num_ctx, num_parallel and num_batch in force
    notes, warnings           what was chosen for the user
    """

    context: int
    slots: int
    batch: int
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


class OllamaFitting(LlamaCppFitting):
    """What Ollama's llama-server admits: nothing beyond the trained context, to which Ollama lowers every longer num_ctx."""

    def left(self, context: int, sequences: int) -> int:
        """Bytes of the fullest device that stay free; none beyond the trained context."""
        longest = self.architecture.max_context
        return -1 if longest is not None and context > longest else LlamaCppFitting.left(self, context, sequences)


class Ollama(Engine):
    """Ollama as of August 2026."""

    name: ClassVar[str] = "ollama"
    title: ClassVar[str] = "Ollama"
    version: ClassVar[str] = "2026-08 (llama.cpp b10488)"
    by_layers: ClassVar[bool] = True
    remedy_weights: ClassVar[tuple[str, ...]] = ("q8_0", "q4_k_m")
    usual_weights: ClassVar[str | None] = "q4_k_m"
    settings: ClassVar[tuple[Setting, ...]] = (
        Setting("num_ctx", "int", None, "tokens a slot (num_ctx, OLLAMA_CONTEXT_LENGTH); default by the memory of all GPUs", least=4),
        Setting("num_parallel", "int", None, "slots (OLLAMA_NUM_PARALLEL); default one a sequence", least=1),
        Setting("num_batch", "int", None, "batch, logical and physical (num_batch); default by num_ctx", least=1),
        Setting("kv_cache_type", "str", None, "type of K and V (OLLAMA_KV_CACHE_TYPE); default f16, or what --kv-dtype says"),
        Setting("flash_attention", "str", "auto", "flash attention (OLLAMA_FLASH_ATTENTION)", ("auto", "on", "off")),
    )

    _runner = LlamaCpp()

    def knows(self, family: str, class_name: str = "") -> bool:
        """As llama.cpp."""
        return self._runner.knows(family, class_name)

    def plan(self, architecture: Architecture, workload: Workload) -> Plan:
        """What the llama-server that Ollama starts allocates. Raises EngineRejectsError, UnsupportedArchitectureError, UsageError."""
        args = self.read_args(workload.engine_args)
        launch = self._launch(architecture, workload, args)
        plan = self._runner.plan(architecture, _for_runner(workload, args, launch))
        return replace(
            plan,
            engine=self.name,
            version=self.version,
            args=args
            | {
                "num_ctx": launch.context,
                "num_parallel": launch.slots,
                "num_batch": launch.batch,
                "kv_cache_type": plan.args["cache_type_k"],
            },
            notes=(*plan.notes, *launch.notes),
            warnings=(*plan.warnings, *launch.warnings),
        )

    def capacity(self, architecture: Architecture, workload: Workload, kv_memory: int) -> Capacity | None:
        """As llama.cpp's, under the flags that Ollama passes."""
        args = self.read_args(workload.engine_args)
        return self._runner.capacity(architecture, _for_runner(workload, args, self._launch(architecture, workload, args)), kv_memory)

    def fitting(self, architecture: Architecture, workload: Workload, kv_memory: int) -> OllamaFitting:
        """What `kv_memory` bytes per device admit; the search asks for a num_ctx of its own."""
        args = {key: value for key, value in workload.engine_args.items() if key.strip().lstrip("-").replace("-", "_") != "num_ctx"}

        def allocate(asked: Workload) -> tuple[Request, Allocation]:
            given = self.read_args(args)
            return self._runner.allocate(architecture, _for_runner(asked, given, self._launch(architecture, asked, given)))

        return OllamaFitting(self, architecture, workload, kv_memory, allocate)

    def context_of(self, architecture: Architecture, workload: Workload) -> int:
        """num_ctx in force: what was asked, else Ollama's default, and never more than the trained context. Raises UsageError."""
        args = self.read_args(workload.engine_args)
        context = self._context(architecture, workload, args["num_ctx"], [])
        workload.check_prefix(context)
        return context

    def _launch(self, architecture: Architecture, workload: Workload, args: Mapping[str, Any]) -> Launch:
        notes: list[str] = []
        warnings: list[str] = []
        context = self._context(architecture, workload, args["num_ctx"], notes)
        slots = args["num_parallel"] or workload.sequences
        name = architecture_name(architecture, self.name)
        if name in SINGLE_SLOT and slots > 1:
            warnings.append(f"Ollama runs {name} models with one slot: {slots:,} sequences wait for it")
            slots = 1
        batch = args["num_batch"] or _batch(context * slots, workload, flash=args["flash_attention"] != "off")
        return Launch(context, slots, batch, tuple(notes), tuple(warnings))

    @staticmethod
    def _context(architecture: Architecture, workload: Workload, asked: int | None, notes: list[str]) -> int:
        """num_ctx in force: asked, or Ollama's default, and never more than the trained context."""
        if workload.context == -1:
            raise UsageError("context -1 is vLLM's word for the largest that fits", "ask kvcalc fit for it")
        if asked is not None and workload.context is not None and asked != workload.context:
            raise UsageError(f"num_ctx is {asked}, and the context {workload.context}", "give one of the two")
        context = asked or workload.context
        if context is None:
            memory = 0
            if workload.gpu:
                memory = parse_gpu(workload.gpu)[0].memory * workload.devices
            context = next(tokens for least, tokens in _CONTEXT_BY_MEMORY if memory >= least)
            known = f"GPUs with {memory // GIB} GiB" if workload.gpu else "less than 23 GiB of GPU memory assumed (--gpu says otherwise)"
            notes.append(f"num_ctx defaulted to {context:,} tokens: Ollama's choice for {known}")
        longest = architecture.max_context
        if longest is not None and context > longest:
            notes.append(f"num_ctx {context:,} lowered to the {longest:,} tokens that the model was trained for, as Ollama does")
            context = longest
        return context


def _batch(tokens: int, workload: Workload, *, flash: bool) -> int:
    """num_batch for the tokens of all slots; smaller without flash attention on an NVIDIA card."""
    if not flash and workload.gpu:
        gpu, _ = parse_gpu(workload.gpu)
        if gpu.vendor == "nvidia":
            return _SMALL_BATCH if gpu.memory <= _SMALL_CARD and tokens > _SMALL_CONTEXT else _BATCH_WITHOUT_FLASH
    return next(batch for above, batch in _BATCH_BY_CONTEXT if tokens > above)


def _for_runner(workload: Workload, args: Mapping[str, Any], launch: Launch) -> Workload:
    """The same question to llama.cpp, under the flags that Ollama passes."""
    if workload.kv_dtype != "auto":
        pair = get_kv_format(workload.kv_dtype)
        if pair.key is not pair.value:
            raise EngineRejectsError("Ollama has one cache type for K and V", "give one format, such as q8_0")
    return replace(
        workload,
        context=launch.context,
        sequences=launch.slots,
        engine_args={
            "ctx_size": launch.context * launch.slots,
            "parallel": launch.slots,
            "kv_unified": False,
            "swa_full": False,
            "batch_size": launch.batch,
            "ubatch_size": launch.batch,
            "flash_attn": args["flash_attention"],
            "cache_type_k": args["kv_cache_type"],
            "cache_type_v": args["kv_cache_type"],
        },
    )
