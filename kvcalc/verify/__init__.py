"""`verify`: kvcalc's figure beside the real model class's own cache, layer by layer.

    MODEL ──▶ Architecture ──engine `transformers`──▶ bytes a layer ─┐
      └─────▶ config ──the library's class on the meta device──▶ bytes a layer ─┴─▶ equal?

A config.json goes to the class as it is. A catalogue entry, a YAML or a GGUF is written back as a config (mirror.py), and only used
if kvcalc reads the same layers from it again. Needs torch and transformers: `pip install 'kvcalc[lab]'`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvcalc.core.errors import UnsupportedArchitectureError, UsageError
from kvcalc.core.units import clean, parse_tokens
from kvcalc.core.workload import Workload
from kvcalc.engines import get_engine
from kvcalc.engines.transformers.engine import tensors_by_layer
from kvcalc.engines.transformers.stores import Plain
from kvcalc.questions.documents.kinds import Answer
from kvcalc.questions.documents.parts import asked_of, engine_of, model_of
from kvcalc.questions.documents.verify import ClassFigures, ComparedLayer, RunClass, VerifyDocument
from kvcalc.sources import catalogue, load
from kvcalc.sources.files import LARGEST_CONFIG, read_bytes, read_json, shown
from kvcalc.sources.hf.reader import read_config
from kvcalc.verify import run
from kvcalc.verify.mirror import mirror

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcalc.core.architecture import Architecture
    from kvcalc.core.plan import Plan
    from kvcalc.engines.transformers.tensors import CacheTensor

#: Tokens beyond the widest window: enough to see it drop some, and no multiple of a ratio.
_BEYOND = 17
#: The longest context that is run: shapes cost nothing, but a mask of T x T has to be thought up, and some classes walk token by token.
MOST = 1024 * 1024


#: Where MODEL's fields came from.
PUBLISHED, WRITTEN = "its own config.json", "the architecture, written back as a config"


@dataclass(frozen=True, slots=True)
class Verification(Answer):
    """The comparison: layer by layer, in order, and what was run."""

    architecture: Architecture
    plan: Plan
    layers: tuple[ComparedLayer, ...]
    model_class: str
    versions: Mapping[str, str]
    config: str

    @property
    def equal(self) -> bool:
        """Every layer, to the byte."""
        return all(row.kvcalc == row.transformers for row in self.layers)

    @property
    def kvcalc(self) -> int:
        """The total that kvcalc says."""
        return sum(row.kvcalc for row in self.layers)

    @property
    def transformers(self) -> int:
        """The total that the class holds."""
        return sum(row.transformers for row in self.layers)

    def document(self) -> VerifyDocument:
        """`kvcalc.verify/1`."""
        return VerifyDocument(
            model=model_of(self.architecture),
            workload=asked_of(Workload(context=self.plan.context), self.plan.context),
            engine=engine_of(self.plan),
            kv_dtype=self.plan.kv_dtype,
            equal=self.equal,
            bytes=ClassFigures(self.kvcalc, self.transformers, self.kvcalc - self.transformers),
            layers=self.layers,
            class_=RunClass(self.model_class, self.config, self.versions["torch"], self.versions["transformers"]),
            notes=self.plan.notes,
            warnings=self.plan.warnings,
        )


def verify(model: str | Mapping[str, Any], context: str | int | None = None) -> Verification:
    """Run MODEL's class and compare. `context`: tokens; a few more than the widest window where it is left open.

    Raises UsageError without torch and transformers, UnsupportedArchitectureError where the class does not run on the meta device,
    and whatever loading MODEL raises.
    """
    run.require()
    architecture = load(model)
    tokens = _default_context(architecture) if context is None else parse_tokens(context, "context")
    if tokens > MOST:
        raise UsageError(
            f"context: verify runs at most {MOST:,} tokens, and {tokens:,} were asked for", "shapes repeat: fewer show the same"
        )
    plan = get_engine("transformers").plan(architecture, Workload(context=tokens))
    fields, config = published(model, architecture), PUBLISHED
    if fields is None:
        fields, config = written_back(architecture), WRITTEN
    measured = run.measure(fields, architecture.class_name, plan.kv_dtype, tokens)
    return Verification(
        architecture=architecture,
        plan=plan,
        layers=tuple(_layers(architecture, plan, measured.layers)),
        model_class=measured.model_class,
        versions={"torch": measured.torch, "transformers": measured.transformers},
        config=config,
    )


def _default_context(architecture: Architecture) -> int:
    """Enough tokens to see the widest window drop some."""
    windows = [tensor.rows.size for kept in tensors_by_layer(architecture) for tensor in kept if tensor.rows.kind in ("window", "entries")]
    return min(max(windows, default=0) + _BEYOND, MOST)


def published(model: str | Mapping[str, Any], architecture: Architecture) -> dict[str, Any] | None:
    """The config.json behind MODEL as it was published; None where there is none (a catalogue entry, a YAML, a GGUF)."""
    if isinstance(model, Mapping):
        inline = model.get("hf_config")
        return dict(inline) if isinstance(inline, Mapping) else None
    source = architecture.source
    if source is not None and source.where == "Hub":
        from kvcalc.sources.hf.hub import Repository

        fetched = Repository(source.file.removesuffix("/config.json"), source.revision).fetch("config.json", LARGEST_CONFIG)
        return read_json(read_bytes(fetched.path), source.file) if fetched else None
    if catalogue.has(model):
        return None
    path = Path(model).expanduser()
    path = path / "config.json" if path.is_dir() else path
    if path.suffix != ".json":
        return None
    document = read_json(read_bytes(path), shown(path))
    return document if "model_type" in document else None


def written_back(architecture: Architecture) -> dict[str, Any]:
    """The architecture as its class's config. Raises UnsupportedArchitectureError where kvcalc does not read the same layers from it."""
    fields = run.complete(architecture.family, mirror(architecture, run.class_defaults(architecture.family)))
    if tensors_by_layer(read_config(fields)) != tensors_by_layer(architecture):
        raise UnsupportedArchitectureError(
            f"kvcalc cannot write the layers of {clean(architecture.id, 60)} back as a {clean(architecture.family, 60)} config",
            "verify its published config.json: a path, or org/name",
        )
    return fields


def _layers(architecture: Architecture, plan: Plan, measured: tuple[int, ...]) -> Iterator[ComparedLayer]:
    """A row a layer where the cache has as many entries, or a whole number for each; else one for everything."""
    layout = architecture.layers
    figures = [_bytes(kept, plan) for kept in tensors_by_layer(architecture)]
    entries, rest = divmod(len(measured), layout.count)
    if rest or not entries:
        yield _layer("all", architecture.family, sum(figures), sum(measured))
        return
    for i, name in enumerate(layout.order):
        states = " + ".join(state.kind for state in layout.states[name])
        yield _layer(str(i), states, figures[i], sum(measured[i * entries : (i + 1) * entries]))


def _layer(name: str, states: str, ours: int, theirs: int) -> ComparedLayer:
    return ComparedLayer(name, states, ours, theirs, ours - theirs)


def _bytes(kept: tuple[CacheTensor, ...], plan: Plan) -> int:
    """Bytes of one layer's tensors at the plan's context."""
    return sum(line.bytes for line in Plain(Counter(kept), plan.kv_dtype).lines(plan.context, 0, 1))
