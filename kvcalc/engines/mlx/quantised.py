"""`--kv-bits`: which caches become quantized ones, when, and what that does to the model (mlx-lm 0.32.2: generate.py, cache.py).

After every call each cache that has `to_quantized` and holds `quantized_kv_start` tokens is converted, rows as allocated.

    row of w elements = w x bits / 8 + 2 x (w / group) x bytes of the model's type          a scale and a bias a group
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvcalc.core.errors import EngineRejectsError
from kvcalc.core.formats import get_format
from kvcalc.engines.mlx.caches import Growing, Rotating

if TYPE_CHECKING:
    from kvcalc.engines.mlx.caches import Cache
    from kvcalc.engines.mlx.families import Family
    from kvcalc.engines.mlx.rows import Schedule

BITS = (1, 2, 3, 4, 5, 6, 8)
GROUPS = (32, 64, 128)
#: What the next forward call says where a module reads its cache by itself.
ATTRIBUTE_ERROR = "AttributeError or TypeError: it reads the cache as plain arrays, and quantized ones are lists"


@dataclass(frozen=True, slots=True)
class Quantisation:
    """Bits of an element, elements of a group, and the tokens from which on caches are converted."""

    bits: int
    group: int
    start: int

    @property
    def name(self) -> str:
        """As a format: `mlx_4bit_g64`."""
        return f"mlx_{self.bits}bit_g{self.group}"

    def acts(self, schedule: Schedule) -> bool:
        """Caches that can be are converted by the last call."""
        return schedule.context >= self.start

    @staticmethod
    def reaches(cache: Cache) -> bool:
        """Whether this cache is converted: a plain one that stands in no list."""
        return isinstance(cache, Growing) and not cache.pair.listed

    def row_bytes(self, width: int, dtype: str) -> int:
        """Bytes of one row of `width` elements."""
        return width * self.bits // 8 + 2 * (width // self.group) * get_format(dtype, "dtype").row_bytes(1, 1)

    def check(self, family: Family, caches: dict[Cache, int], schedule: Schedule, notes: list[str]) -> None:
        """Raise EngineRejectsError where the conversion, or the call after it, fails; say where it does nothing."""
        if not self.acts(schedule):
            notes.append(f"kv_bits does nothing yet: caches are quantized from {self.start:,} tokens on (quantized_kv_start)")
            return
        for cache in caches:
            if isinstance(cache, Rotating) and not cache.pair.listed:
                raise EngineRejectsError(
                    f"mlx-lm cannot quantize a rotating cache (NotImplementedError: RotatingKVCache Quantization NYI), and at "
                    f"{self.start:,} tokens it tries to",
                    "leave kv_bits out" if family.own_cache else "leave kv_bits or max_kv_size out",
                )
            if self.reaches(cache):
                self._check_widths(cache)
        fails = any(cache.pair.names[0] == "latent" for cache in caches if isinstance(cache, Growing) and self.reaches(cache))
        reached = [cache for cache in caches if self.reaches(cache)]
        if not reached:
            notes.append("kv_bits does nothing here: none of this model's caches can be converted")
        elif (fails or family.fails) and schedule.before_last >= self.start:
            raise EngineRejectsError(f"mlx-lm's {family.module} cannot run on a quantized cache ({ATTRIBUTE_ERROR})", "leave kv_bits out")

    def _check_widths(self, cache: Cache) -> None:
        if not isinstance(cache, Growing):
            return
        for width in (cache.pair.key, cache.pair.value):
            if width % self.group:
                raise EngineRejectsError(
                    f"kv_group_size {self.group} does not divide the head width of {width}, which mlx quantizes by",
                    "try 32, or leave kv_bits out",
                )


def read_quantisation(args: dict[str, Any]) -> Quantisation | None:
    """The settings of the quantized cache; None where it is not asked for. Raises EngineRejectsError."""
    bits, group = args["kv_bits"], args["kv_group_size"]
    if bits is None:
        return None
    if bits not in BITS:
        raise EngineRejectsError(f"kv_bits {bits}: mlx quantizes to 1 to 6 or 8 bits", "choose one of them")
    if group not in GROUPS:
        raise EngineRejectsError(f"kv_group_size {group}: mlx has groups of 32, 64 and 128", "choose one of them")
    return Quantisation(bits, group, args["quantized_kv_start"])
