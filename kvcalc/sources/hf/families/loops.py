"""Models that run their layers more than once, and keep a cache for every pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.core.errors import InvalidConfigError
from kvcalc.sources.hf.families import fields
from kvcalc.sources.hf.families.layers import FULL, SLIDING, Layers, bounded, built, layer_count, listed_types, named
from kvcalc.sources.hf.families.windows import BUILDERS

if TYPE_CHECKING:
    from kvcalc.sources.hf.config import Config


def hrm_text(config: Config) -> Layers:
    """Full attention; `num_layers_per_stack` layers run `H_cycles` x (`L_cycles` + 1) times, each time with a cache of their own."""
    stack = config.optional("num_layers_per_stack", least=1) or layer_count(config)
    count = bounded(stack * config.integer("H_cycles") * (config.integer("L_cycles", least=0) + 1), "H_cycles")
    return Layers(["full"] * count, {"full": (fields.read_heads(config, kv=fields.QUERY_HEADS).full(),)})


def looped(config: Config) -> Layers:
    """Full attention; all layers run `num_loops` times, each time with a cache of their own."""
    count = bounded(layer_count(config) * config.integer("num_loops", default=1), "num_loops")
    return Layers(["full"] * count, {"full": fields.full(config)})


def loop_coder(config: Config) -> Layers:
    """Full attention in the first of `loop_num` (2) passes over the layers, a window of `loop_window_size` (64) in the others."""
    once, passes = layer_count(config), config.integer("loop_num", default=2)
    bounded(once * passes, "loop_num")
    heads = fields.read_heads(config)
    window = heads.sliding(config.integer("loop_window_size", default=64))
    return named(["full"] * once + ["sliding"] * once * (passes - 1), {"full": (heads.full(),), "sliding": (window,)})


def dory(config: Config) -> Layers:
    """Windows, the last of each four layers full; the middle layers run `n_recurrent_loops` times, each time with a cache of their own.

    Released files list attention and MLP as layers of their own: two entries are one layer.
    """
    count = layer_count(config)
    types = listed_types(config, count)
    halved = 2 if types and "mlp" in types else 1
    types = types[:count:halved] if types else [FULL if (i + 1) % 4 == 0 else SLIDING for i in range(count)]
    start = config.integer("n_input_layers", least=0) // halved
    tail = config.integer("n_output_layers", least=0) // halved
    end = len(types) - tail
    if start > end:
        raise InvalidConfigError(f"config.json: 'n_input_layers' and 'n_output_layers' are more than the {len(types)} layers")
    loops = config.integer("n_recurrent_loops") if config.get("recurrent_kv_cache_mode") in (None, "per_loop") else 1
    bounded(len(types) + (end - start) * (loops - 1), "n_recurrent_loops")
    return built(config, [*types[:start], *types[start:end] * loops, *types[end:]], BUILDERS)
