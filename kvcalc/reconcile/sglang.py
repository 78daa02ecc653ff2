"""SGLang's start-up log. Its "GB" are GiB.

KV Cache is allocated. #tokens: 440916, K size: 26.91 GB, V size: 26.91 GB          MLA: KV size: 15.03 GB
Mamba Cache is allocated. max_mamba_cache_size: 117, conv_state size: 0.28GB, ssm_state size: 8.07GB
max_total_num_tokens=440916, …, max_running_requests=2048, context_len=131072
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from kvcalc.engines import get_engine
from kvcalc.errors import KvcalcError
from kvcalc.reconcile.base import Printed, Recogniser, Row, printed
from kvcalc.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcalc.architecture import Architecture

_KV = re.compile(r"KV Cache is allocated\.[^#]*#tokens: ([0-9]+), (?:K size: ([0-9.]+) (GB), V size: ([0-9.]+) GB|KV size: ([0-9.]+) (GB))")
_STATE = re.compile(
    r"Mamba Cache is allocated\. max_mamba_cache_size: ([0-9]+), conv_state size: ([0-9.]+) ?(GB),? ssm_state size: ([0-9.]+) ?(GB)"
)
_TOKENS = re.compile(r"max_total_num_tokens=([0-9]+)")
_ARGS = (
    ("tensor_parallel", re.compile(r"\btp_size=([0-9]+)"), int),
    ("pipeline_parallel", re.compile(r"\bpp_size=([0-9]+)"), int),
    ("kv_dtype", re.compile(r"kv_cache_dtype='([a-z0-9_]+)'"), str),
    ("page_size", re.compile(r"\bpage_size=([0-9]+)"), int),
    ("disable_radix_cache", re.compile(r"disable_radix_cache=(True|False)"), lambda text: text == "True"),
)
_MODEL = re.compile(r"model_path='([^']{1,200})'")
_VERSION = re.compile(r"sglang(?:[ =]+v?|[-_]version['\"]?[:=] ?['\"]?)([0-9]+\.[0-9]+\.[0-9]+)", re.IGNORECASE)
_WORKLOAD_KEYS = ("tensor_parallel", "pipeline_parallel", "kv_dtype")


class SglangLog(Recogniser):
    """SGLang, one rank's view."""

    engine: ClassVar[str] = "sglang"
    marks: ClassVar[tuple[bytes, ...]] = (b"KV Cache is allocated", b"Mamba Cache is allocated", b"max_total_num_tokens", b"server_args=")

    def feed(self, line: str, number: int) -> None:
        """Figures, settings and the model of one line."""
        pool, state, tokens = _KV.search(line), _STATE.search(line), _TOKENS.search(line)
        if pool:
            self.seen.add("tokens", printed(pool[1], number))
            for name, text in (("key", pool[2]), ("value", pool[4]), ("latent", pool[5])):
                if text:
                    self.seen.add(name, printed(text.rstrip("."), number, "GB"))
        if state:
            self.seen.settings["max_mamba_cache_size"] = int(state[1])
            self.seen.add("conv", printed(state[2].rstrip("."), number, "GB"))
            self.seen.add("recurrent", printed(state[4].rstrip("."), number, "GB"))
        if tokens:
            self.seen.add("capacity", printed(tokens[1], number))
        if "server_args=" in line:
            self._arguments(line)

    def _arguments(self, line: str) -> None:
        model, version = _MODEL.search(line), _VERSION.search(line)
        self.seen.model = model[1] if model else self.seen.model
        self.seen.version = version[1] if version else self.seen.version
        for name, pattern, read in _ARGS:
            match = pattern.search(line)
            if match:
                self.seen.settings[name] = read(match[1])

    def workload(self, **more: Any) -> Workload:
        """A server whose pool holds the tokens that the log prints."""
        settings = {**self.seen.settings, **more}
        tokens = self.seen.last("tokens") or self.seen.last("capacity")
        args = {key: value for key, value in settings.items() if key not in _WORKLOAD_KEYS}
        if tokens is not None:
            args["max_total_tokens"] = int(tokens.value)
        asked = {key: settings[key] for key in _WORKLOAD_KEYS if key in settings}
        return Workload(context=1, engine_args=args, **asked)

    def rows(self, architecture: Architecture) -> list[Row]:
        """Each pool's bytes, recomputed from the tokens and slots that the log prints."""
        return list(self._rows(architecture))

    def _rows(self, architecture: Architecture) -> Iterator[Row]:
        sizes = self._sizes(architecture, self.workload())
        for name in ("key", "value", "latent", "conv", "recurrent"):
            figure = self.seen.last(name)
            if figure is None:
                continue
            expected = Fraction(sizes.get(name, 0))
            within = figure.holds(expected, expected)
            reason = "" if within else self._reason(architecture, name, figure)
            yield Row(_LABELS[name], "bytes", figure.line, figure.value, expected, expected, within, reason)

    @staticmethod
    def _sizes(architecture: Architecture, asked: Workload) -> dict[str, int]:
        """Bytes of one rank by role, pads included."""
        plan = get_engine("sglang").plan(architecture, asked)
        ranks = asked.devices
        found: dict[str, int] = {}
        for line in plan.lines:
            role = _ROLES.get(line.buffer, line.buffer)
            found[role] = found.get(role, 0) + line.bytes // ranks
        return found

    def _reason(self, architecture: Architecture, name: str, figure: Printed) -> str:
        for text, more in _SUSPECTS:
            try:
                size = self._sizes(architecture, self.workload(**more)).get(name, 0)
            except KvcalcError:
                continue
            if figure.holds(size, size):
                return text
        return "none of the usual reasons explains it: compare model, settings and version"


_LABELS = {"key": "K pool", "value": "V pool", "latent": "KV pool", "conv": "convolution state", "recurrent": "recurrent state"}
_ROLES = {"index": "latent"}
#: What usually differs between the log and what was asked.
_SUSPECTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("the cache was kept in fp8", {"kv_dtype": "fp8"}),
    ("the cache was kept in the model's type", {"kv_dtype": "auto"}),
    ("the recurrent state was kept in bf16", {"mamba_ssm_dtype": "bfloat16"}),
    ("the recurrent state was kept in fp32", {"mamba_ssm_dtype": "float32"}),
    ("every layer kept in full (hybrid window memory off)", {"disable_hybrid_swa_memory": True}),
    ("another page size: 1", {"page_size": 1}),
    ("another page size: 64", {"page_size": 64}),
    ("heads were replicated, not divided, over the ranks", {"tensor_parallel": 1}),
)
