"""Decoders that also attend to an encoder or to images: self-attention grows, cross-attention is written once.

How long the source is, a config.json says only where it never varies (Whisper). Elsewhere it counts as 0, and a note says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.core.states import Cross, Full
from kvcalc.sources.hf.families import fields
from kvcalc.sources.hf.families.fields import Heads
from kvcalc.sources.hf.families.layers import Layers, bounded, by_type, layer_count, named
from kvcalc.sources.hf.families.windows import BUILDERS, periodic, where

if TYPE_CHECKING:
    from kvcalc.sources.hf.config import Config

UNKNOWN_SOURCE = ("keys and values of the encoder's tokens are not counted: config.json does not say how many there are",)


def bart(config: Config) -> Layers:
    """Full self-attention of `decoder_layers` layers, and cross-attention with the same heads."""
    query = config.integer("decoder_attention_heads", "num_decoder_attention_heads", *fields.QUERY_HEADS)
    heads = Heads(query, query, fields.derived_width(config, query))
    return _crossed(heads, layer_count(config, "decoder_layers", "num_decoder_layers", *fields.LAYERS))


def whisper(config: Config) -> Layers:
    """As BART; the encoder always has `max_source_positions` tokens."""
    query = config.integer("decoder_attention_heads")
    heads = Heads(query, query, fields.derived_width(config, query))
    return _crossed(heads, layer_count(config, "decoder_layers"), config.integer("max_source_positions"))


def t5(config: Config) -> Layers:
    """Full self-attention of `num_decoder_layers` layers, heads `d_kv` wide, and cross-attention with the same heads."""
    query = config.integer("num_heads", *fields.QUERY_HEADS)
    heads = Heads(query, query, config.integer("head_dim", "d_kv"))
    own = config.optional("num_decoder_layers", least=1)
    return _crossed(heads, layer_count(config) if own is None else bounded(own, "num_decoder_layers"))


def grouped_decoder(config: Config) -> Layers:
    """Full self-attention with the decoder's own layers, heads and KV heads, and cross-attention with the same heads."""
    query = config.integer("decoder_num_attention_heads", *fields.QUERY_HEADS)
    kv = config.optional("decoder_num_key_value_heads", *fields.KV_HEADS, least=1) or query
    width = config.optional("head_dim", least=1) or fields.derived_width(config, query)
    return _crossed(Heads(query, kv, width), layer_count(config, "decoder_num_hidden_layers", *fields.LAYERS))


def dia(config: Config) -> Layers:
    """Full self-attention, and cross-attention with heads of its own (`cross_*`)."""
    query = config.integer("cross_num_attention_heads")
    cross = Heads(query, config.optional("cross_num_key_value_heads", least=1) or query, config.integer("cross_head_dim"))
    return _crossed(fields.read_heads(config), layer_count(config), cross_heads=cross)


def t5gemma(config: Config) -> Layers:
    """Even layers slide, odd ones are full; every layer also has cross-attention."""
    return _crossed_types(config, by_type(config, where(lambda i, _: i % 2 == 1), BUILDERS))


def t5gemma2(config: Config) -> Layers:
    """The last of each `sliding_window_pattern` (6) layers is full; every layer also has cross-attention."""
    return _crossed_types(config, by_type(config, lambda c, count: periodic(c, count, default=6), BUILDERS))


def mllama(config: Config) -> Layers:
    """Full self-attention, except that layers in `cross_attention_layers` see the image only, and keep nothing without one."""
    count = layer_count(config)
    listed = config.sequence("cross_attention_layers")
    # The class asks of each layer whether it is listed: what the list names beyond the last layer is never asked for.
    crossing = range(3, count, 5) if listed is None else {config.checked(item, "cross_attention_layers", least=0) for item in listed}
    heads = fields.read_heads(config)
    order = ["cross" if i in crossing else "full" for i in range(count)]
    layers = named(order, {"full": (heads.full(),), "cross": (_cross(heads),)})
    return layers._replace(notes=("keys and values of images are not counted",))


def _cross(heads: Heads, source_tokens: int = 0) -> Cross:
    return Cross(kv_heads=heads.kv, head_dim=heads.dim, query_heads=heads.query, source_tokens=source_tokens)


def _crossed(heads: Heads, count: int, source_tokens: int = 0, *, cross_heads: Heads | None = None) -> Layers:
    states: tuple[Full, Cross] = (heads.full(), _cross(cross_heads or heads, source_tokens))
    return Layers(["decoder"] * count, {"decoder": states}, notes=() if source_tokens else UNKNOWN_SOURCE)


def _crossed_types(config: Config, layers: Layers) -> Layers:
    cross = _cross(fields.read_heads(config))
    states = {name: (*kept, cross) for name, kept in layers.states.items()}
    # The decoder's part of the file calls itself a decoder alone; the whole is an encoder-decoder.
    return layers._replace(states=states, traits={"is_encoder_decoder": True, "is_decoder": False}, notes=UNKNOWN_SOURCE)
