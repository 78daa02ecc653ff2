"""The options that several commands share, and the request that they make together."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from kvcalc.core.errors import UsageError, nearest
from kvcalc.core.units import MIB, checked_int, clean, parse_bytes, parse_tokens
from kvcalc.engines.registry import ENGINES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from kvcalc.questions.request import Request

_FRACTION = re.compile(r"[0-9]{0,3}\.?[0-9]{1,12}", re.ASCII)

_ENGINES = ", ".join(ENGINES)

Model = Annotated[str, typer.Argument(metavar="MODEL", help="Catalogue id, org/name, path, or - for standard input.")]
Context = Annotated[
    str | None, typer.Option("--ctx", "-c", metavar="TOKENS", help="Tokens per sequence: 4096, 32k, 1m. [the model's maximum]")
]
Sequences = Annotated[str, typer.Option("--sequences", "-n", "--batch", metavar="COUNT", help="Sequences held at once.")]
KvDtype = Annotated[
    str, typer.Option("--kv-dtype", metavar="FORMAT", help="Storage format, such as bf16, fp8 or q8_0; K/V apart: q8_0/q4_0.")
]
Engine = Annotated[str, typer.Option("--engine", "-e", metavar="ENGINE", help=f"{_ENGINES}.")]
Engines = Annotated[
    list[str] | None,
    typer.Option(
        "--engine",
        "-e",
        metavar="ENGINE",
        help=f"{_ENGINES}; repeat to compare. [ideal]",
    ),
]
EngineArgs = Annotated[
    list[str] | None,
    typer.Option("--engine-arg", "-E", metavar="KEY=VALUE", help="A setting of the engine, under its own name; repeatable."),
]
TensorParallel = Annotated[str | None, typer.Option("--tp", metavar="COUNT", help="Tensor parallel size. [1, or the count of --gpu]")]
PipelineParallel = Annotated[str, typer.Option("--pp", metavar="COUNT", help="Pipeline parallel size.")]
DecodeContextParallel = Annotated[str, typer.Option("--dcp", metavar="COUNT", help="Decode context parallel size.")]
Gpu = Annotated[str | None, typer.Option("--gpu", metavar="NAME[:COUNT]", help="Accelerator, such as h100-80gb:2.")]
SharedPrefix = Annotated[str, typer.Option("--shared-prefix", metavar="TOKENS", help="Leading tokens that all sequences share.")]
KvMemory = Annotated[str | None, typer.Option("--kv-memory", metavar="SIZE", help="Memory per device left for the cache, such as 60GiB.")]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="What-if on the architecture: kv_heads=8; repeatable.")]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        "-f",
        metavar="FORMAT",
        help="table, plain, json, yaml, csv, markdown, html. [by --output; else table on a terminal, or plain]",
    ),
]
OutputFile = Annotated[str | None, typer.Option("--output", "-o", metavar="FILE", help="Write to FILE, whole or not at all.")]
Revision = Annotated[str | None, typer.Option("--revision", metavar="NAME", help="Branch, tag or commit of a Hub repository.")]
Offline = Annotated[bool, typer.Option("--offline", help="Answer from the local Hub cache only.")]
Explain = Annotated[bool, typer.Option("--explain", help="Show the derivation under the figures.")]


def make_request(
    model: str,
    *,
    ctx: str | None,
    sequences: str,
    kv_dtype: str,
    engine: str,
    engine_arg: list[str] | None,
    tp: str | None,
    pp: str,
    dcp: str,
    gpu: str | None,
    shared_prefix: str,
    kv_memory: str | None = None,
    sets: list[str] | None = None,
    revision: str | None = None,
    offline: bool = False,
) -> Request:
    """The request behind the shared options, `--set` applied. Raises UsageError naming the option."""
    from kvcalc.questions.request import parse_context, parse_request

    model = hub_model(model, revision, offline=offline)

    request = parse_request(
        {
            "model": model,
            "context": None if ctx is None else parse_context(ctx, "--ctx"),
            "sequences": count(sequences, "--sequences"),
            "kv_dtype": kv_dtype,
            "engine": engine,
            "engine_args": key_values(engine_arg or (), "--engine-arg"),
            "tensor_parallel": None if tp is None else count(tp, "--tp"),
            "pipeline_parallel": count(pp, "--pp"),
            "decode_context_parallel": count(dcp, "--dcp"),
            "gpu": gpu,
            "shared_prefix": parse_tokens(shared_prefix, "--shared-prefix", least=0),
            "kv_memory": None if kv_memory is None else parse_bytes(kv_memory, "--kv-memory"),
        }
    )
    if not sets:
        return request
    from kvcalc.questions.set_fields import override
    from kvcalc.sources import load

    return replace(request, model=override(load(model), key_values(sets, "--set")))


def hub_model(model: str, revision: str | None, *, offline: bool) -> str:
    """MODEL with its revision; `--offline` is what the Hub's own client calls HF_HUB_OFFLINE. Raises UsageError."""
    from kvcalc.render.spinner import spinner
    from kvcalc.sources import waiting

    waiting.around = spinner
    if offline:
        os.environ["HF_HUB_OFFLINE"] = "1"
    if revision is None:
        return model
    if model.count("/") != 1 or "@" in model or model.startswith((".", "/", "~")):
        raise UsageError(f"--revision: '{clean(model)}' is not a Hub repository without a revision", "a repository is written org/name")
    return f"{model}@{revision}"


def hub_models(models: Sequence[str], revision: str | None, *, offline: bool) -> list[str]:
    """`hub_model` for each of several; a revision belongs to one of them. Raises UsageError."""
    if revision is not None and len(models) != 1:
        raise UsageError(
            f"--revision is that of one MODEL, and {len(models) or 'none'} {'are' if models else 'is'} given",
            "write each as org/name@revision" if models else "name one, as org/name",
        )
    return [hub_model(model, revision, offline=offline) for model in models or ("-",)][: len(models)]


def refuse(mode: str, given: Mapping[str, Any]) -> None:
    """Raise UsageError naming those options that were given and that `mode` would ignore."""
    useless = [name for name, value in given.items() if value]
    if useless:
        verb = "means" if len(useless) == 1 else "mean"
        raise UsageError(
            f"{', '.join(useless)} {verb} nothing together with {mode}", "leave it out" if verb == "means" else "leave them out"
        )


def count(text: str, option: str) -> int:
    """A whole number of at least 1. Raises UsageError naming the option."""
    digits = text.strip().replace("_", "").replace(",", "")
    if not (digits.isascii() and digits.removeprefix("-").isdigit()):
        raise UsageError(f"{option}: '{clean(text, 40)}' is not a whole number", "write it like 16")
    return checked_int(int(digits[:40]), option, least=1)


def bare_sizes(given: Mapping[str, str | None]) -> list[str]:
    """A note for each size without a unit that is less than a mebibyte: bytes were asked for, and hardly meant."""
    small = {option: text.strip() for option, text in given.items() if text is not None and text.strip().isdecimal()}
    return [
        f"note: {option} {text} is {int(text):,} bytes; write {text}GiB or {text}GB if that is meant"
        for option, text in small.items()
        if 0 < int(text) < MIB
    ]


def no_match(text: str, known: Iterable[str]) -> str:
    """The note under an empty list."""
    return f"nothing here has '{clean(text, 40)}' in it; " + (nearest(text.strip().lower(), known) or "leave it out to see all")


def fraction(text: str, option: str) -> float:
    """A share such as 0.9. Raises UsageError naming the option."""
    if not _FRACTION.fullmatch(text.strip()):
        raise UsageError(f"{option}: '{clean(text, 40)}' is not a fraction", "write it like 0.9")
    return float(text)


def words(text: str | None, option: str) -> list[str]:
    """`"gqa, mla"` → `["gqa", "mla"]`. Raises UsageError for a list with nothing in it."""
    if text is None:
        return []
    found = [word.strip() for word in text.split(",") if word.strip()]
    if not found:
        raise UsageError(f"{option}: the list is empty", f"write it like {option} one,two")
    return found


def key_values(items: list[str] | tuple[str, ...], option: str) -> dict[str, str]:
    """`["a=1", "b=x"]` → `{"a": "1", "b": "x"}`. Raises UsageError for an item without `=` or a key given twice."""
    found: dict[str, str] = {}
    for item in items:
        key, equals, value = item.partition("=")
        key = key.strip().lstrip("-").replace("-", "_")
        if not equals or not key:
            raise UsageError(f"{option}: '{clean(item, 40)}' is not KEY=VALUE", f"write it like {option} name=value")
        if key in found:
            raise UsageError(f"{option}: '{clean(key, 40)}' is given twice", "give each setting once")
        found[key] = value.strip()
    return found
