"""SGLang's start-up log. Its "GB" are GiB.

KV Cache is allocated. dtype: torch.bfloat16, #tokens: 440916, K size: 26.91 GB, V size: 26.91 GB      MLA: KV size: 15.03 GB
KV Cache is allocated. K size: 26.91 GB, V size: 26.91 GB.                          until 0.4.2; the tokens stand in the last line
SWAKVPool mem usage: 36.69 GB, swa size: 171008, full size: 213761                  after the pool of the window layers and the full one
Mamba Cache is allocated. max_mamba_cache_size: 117, conv_state size: 0.28GB, ssm_state size: 8.07GB
max_total_num_tokens=440916, …, max_running_requests=2048, context_len=131072

Every rank prints the same; the first one's pools are read. A pool holds one page more than its tokens, the states one slot more.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from kvcalc.core.workload import Workload
from kvcalc.engines import get_engine
from kvcalc.engines.base.logs import Ranks, Recogniser, Row, Suspects, explained
from kvcalc.engines.base.printed import Printed, printed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcalc.core.architecture import Architecture

_KV = re.compile(
    r"KV Cache is allocated\.(?: dtype: (?:torch\.)?(\w+),)?(?: #tokens: ([0-9]+),)?"
    r" (?:K size: ([0-9.]+) GB, V size: ([0-9.]+) GB|KV size: ([0-9.]+) GB)"
)
_WINDOWS = re.compile(r"SWAKVPool mem usage: ([0-9.]+) GB, swa size: ([0-9]+), full size: ([0-9]+)")
_STATE = re.compile(
    r"Mamba Cache is allocated\. max_mamba_cache_size: ([0-9]+), conv_state size: ([0-9.]+) ?(GB),? ssm_state size: ([0-9.]+) ?(GB)"
)
_TOKENS = re.compile(r"max_total_num_tokens=([0-9]+)")
_DTYPE = re.compile(r"Using KV cache dtype: torch\.(\w+)")
_RANK = re.compile(r"\[[0-9][0-9: .-]{0,40}((?: [A-Z]{2,8}[0-9]+){1,6})\]")
_ARGS = (
    ("tensor_parallel", re.compile(r"\btp_size=([0-9]+)"), int),
    ("pipeline_parallel", re.compile(r"\bpp_size=([0-9]+)"), int),
    ("kv_dtype", re.compile(r"kv_cache_dtype='([a-z0-9_]+)'"), str),
    ("page_size", re.compile(r"\bpage_size=([0-9]+)"), int),
    ("disable_radix_cache", re.compile(r"disable_radix_cache=(True|False)"), lambda text: text == "True"),
)
_MODEL = re.compile(r"model_path='([^']{1,200})'")
_VERSION = re.compile(r"sglang(?:[ =]+v?|[-_]version['\"]?[:=] ?['\"]?)([0-9]+\.[0-9]+\.[0-9]+)", re.IGNORECASE)
_WORKLOAD_KEYS = ("tensor_parallel", "pipeline_parallel", "kv_dtype", "gpu")
#: What PyTorch calls the types of a cache → the flag's value.
_TORCH = {"bfloat16": "bf16", "float16": "bf16", "float8_e4m3fn": "fp8_e4m3", "float8_e5m2": "fp8_e5m2"}
#: So near below the printed ratio of two pools that rounding cannot reach the next token.
_ROUNDING = 1e-9


@dataclass(slots=True)
class Pool:
    """One pool as its rank prints it: tokens (None: not said there) and bytes by role ("key", "value", "latent")."""

    tokens: int | None
    sizes: dict[str, Printed] = field(default_factory=dict)


class SglangLog(Recogniser):
    """SGLang, one rank's view."""

    engine: ClassVar[str] = "sglang"
    marks: ClassVar[tuple[bytes, ...]] = (
        b"KV Cache is allocated",
        b"SWAKVPool mem usage",
        b"Mamba Cache is allocated",
        b"max_total_num_tokens",
        b"Using KV cache dtype",
        b"server_args=",
    )

    def __init__(self) -> None:
        super().__init__()
        self._pools: dict[str, list[Pool]] = {}
        self._ranks = Ranks()
        self._notes: list[str] = []

    @property
    def recognised(self) -> bool:
        """A pool, a state or the tokens of the whole were found."""
        return bool(self._pools or self.seen.figures)

    @property
    def notes(self) -> tuple[str, ...]:
        """Which pools were left out, and what was read from the names of the ranks."""
        return tuple(self._notes)

    def feed(self, line: str, number: int) -> None:
        """Figures, settings and the model of one line."""
        ranks = _RANK.search(line)
        if ranks:
            self._ranks.read(ranks[1])
        pool, windows, state, tokens, dtype = (pattern.search(line) for pattern in (_KV, _WINDOWS, _STATE, _TOKENS, _DTYPE))
        if pool:
            found = Pool(int(pool[2]) if pool[2] else None)
            for name, text in (("key", pool[3]), ("value", pool[4]), ("latent", pool[5])):
                if text:
                    found.sizes[name] = printed(text.rstrip("."), number, "GB")
            self._pools.setdefault(ranks[1] if ranks else "", []).append(found)
        if windows:
            self.seen.add("windows", printed(windows[1], number, "GB"))
            self.seen.add("window tokens", printed(windows[2], number))
            self.seen.add("full tokens", printed(windows[3], number))
        if state:
            self.seen.settings["max_mamba_cache_size"] = int(state[1])
            self.seen.add("conv", printed(state[2].rstrip("."), number, "GB"))
            self.seen.add("recurrent", printed(state[4].rstrip("."), number, "GB"))
        if tokens:
            self.seen.add("capacity", printed(tokens[1], number))
        stored = (pool and pool[1]) or (dtype and dtype[1])
        if stored in _TORCH:
            self.seen.settings["kv_dtype"] = _TORCH[stored]
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

    def _settle(self) -> None:
        """Take from the names of the ranks what the arguments did not say."""
        settings = self.seen.settings
        self._notes += self._ranks.settle(settings)
        groups = self._ranks.count("DP")
        if groups > 1 and settings.get("tensor_parallel", 1) % groups == 0:
            settings["enable_dp_attention"], settings["dp_size"] = True, groups

    def workload(self, full: int | None, window: int | None = None, **more: Any) -> Workload:
        """A server whose full pool holds `full` tokens, and its window pool `window`."""
        settings = {**self.seen.settings, **more}
        args = {key: value for key, value in settings.items() if key not in _WORKLOAD_KEYS}
        if full is not None:
            args["max_total_tokens"] = full
            if window is not None:
                args["swa_full_tokens_ratio"] = window / full + _ROUNDING
        asked = {key: settings[key] for key in _WORKLOAD_KEYS if key in settings}
        return Workload(context=1, engine_args=args, **asked)

    def rows(self, architecture: Architecture) -> list[Row]:
        """Each pool's bytes, recomputed from the tokens and slots that the log prints."""
        self._settle()
        found = list(self._rows(architecture))
        if not found:
            self._notes.append("nothing to compare: the lines 'KV Cache is allocated' give the bytes of the pools")
        return explained(found, (_SUSPECTS, _PAIRS), lambda more: self._rows(architecture, **more))

    def _shown(self) -> tuple[int | None, int | None, dict[str, Printed]]:
        """Tokens of the full pool, of the window pool if there is one, and every size by its role."""
        pools = next(iter(self._pools.values()), [])
        whole, windows = self.seen.last("full tokens"), self.seen.last("window tokens")
        if whole is not None and windows is not None:
            full, window = int(whole.value), int(windows.value)
        elif len(pools) > 1 and self._are_windows(pools):
            window, full = sorted(pool.tokens or 0 for pool in pools[:2])
        else:
            capacity = self.seen.last("capacity")
            tokens = pools[0].tokens if pools and pools[0].tokens else int(capacity.value) if capacity else None
            sizes = dict(pools[0].sizes) if pools else {}
            if any(pool.sizes != pools[0].sizes for pool in pools[1:]):
                self._note_left_out()
            return tokens, None, sizes
        sizes = {}
        for pool in pools[:2]:
            prefix = "window " if pool.tokens == window and f"window {next(iter(pool.sizes))}" not in sizes else ""
            sizes |= {prefix + name: figure for name, figure in pool.sizes.items()}
        if len(pools) > 2 and pools[2:4] != pools[:2]:
            self._note_left_out()
        return full, window, sizes

    def _note_left_out(self) -> None:
        note = "another pool was left out: a draft model's, or that of another start"
        if note not in self._notes:
            self._notes.append(note)

    @staticmethod
    def _are_windows(pools: list[Pool]) -> bool:
        """Two pools of one model: both tell their tokens, and the pool of the window layers holds fewer."""
        first, second = (pool.tokens for pool in pools[:2])
        return first is not None and second is not None and first != second

    def _rows(self, architecture: Architecture, **more: Any) -> Iterator[Row]:
        full, window, figures = self._shown()
        for name in ("windows", "conv", "recurrent"):
            figure = self.seen.last(name)
            if figure is not None:
                figures[name] = figure
        if not figures:
            return
        sizes = self._sizes(architecture, full, window, **more)
        for name, label in _LABELS.items():
            figure = figures.get(name)
            if figure is not None:
                expected = sizes.get(name, Fraction(0))
                yield Row(label, "bytes", figure.line, figure.value, expected, expected, figure.holds(expected, expected))

    def _sizes(self, architecture: Architecture, full: int | None, window: int | None, **more: Any) -> dict[str, Fraction]:
        """Bytes of one rank by role, the page or slot beyond the last included."""
        asked = self.workload(full, window, **more)
        plan = get_engine("sglang").plan(architecture, asked)
        page, slots = int(plan.args.get("page_size") or 1), int(plan.args.get("max_mamba_cache_size") or 1)
        tokens = int(plan.args.get("max_total_tokens") or 1)
        found: dict[str, Fraction] = {}
        for line in plan.lines:
            if line.state == "padding":
                continue
            sliding = window is not None and line.state in ("sliding", "chunked")
            role = _ROLES.get(line.buffer, line.buffer)
            held = slots if line.buffer in ("conv", "recurrent") else window if sliding else tokens
            spare = 1 if line.buffer in ("conv", "recurrent") else page
            size = Fraction(line.bytes * ((held or 1) + spare), (held or 1) * asked.devices)
            if role in ("key", "value", "latent"):
                found["windows"] = found.get("windows", Fraction(0)) + size
            role = f"window {role}" if sliding else role
            found[role] = found.get(role, Fraction(0)) + size
        return found


_LABELS = {
    "window key": "K pool of window layers",
    "window value": "V pool of window layers",
    "window latent": "KV pool of window layers",
    "key": "K pool",
    "value": "V pool",
    "latent": "KV pool",
    "windows": "both pools",
    "conv": "convolution state",
    "recurrent": "recurrent state",
}
_ROLES = {"index": "latent"}
_RANKS = (2, 4, 8)
#: What usually differs between the log and what was asked.
_SUSPECTS: Suspects = (
    ("the cache was kept in fp8", {"kv_dtype": "fp8"}),
    ("the cache was kept in the model's type", {"kv_dtype": "bf16"}),
    *((f"it ran with tensor parallel size {ranks}", {"tensor_parallel": ranks}) for ranks in _RANKS),
    ("the recurrent state was kept in bf16", {"mamba_ssm_dtype": "bfloat16"}),
    ("the recurrent state was kept in fp32", {"mamba_ssm_dtype": "float32"}),
    ("every layer kept in full (hybrid window memory off)", {"disable_hybrid_swa_memory": True}),
    *((f"another page size: {size}", {"page_size": size}) for size in (1, 64, 128, 256)),
    ("heads were replicated, not divided, over the ranks", {"tensor_parallel": 1}),
)
#: Two of them at once.
_PAIRS: Suspects = tuple((f"fp8 with tensor parallel size {ranks}", {"kv_dtype": "fp8", "tensor_parallel": ranks}) for ranks in _RANKS)


RECOGNISER = SglangLog
