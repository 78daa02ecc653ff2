"""State-space models, alone or between layers of attention: Mamba 1 and 2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.core.errors import InvalidConfigError
from kvcalc.core.states import Mamba1, Mamba2
from kvcalc.sources.hf.families import fields
from kvcalc.sources.hf.families.fields import Heads
from kvcalc.sources.hf.families.layers import FULL, HYBRID, LINEAR, Layers, built, by_type, draft_count, listed_types, uniform

if TYPE_CHECKING:
    from kvcalc.sources.hf.config import Config
    from kvcalc.sources.hf.families.layers import States

#: The layers of a Nemotron-H file that lists none.
_NEMOTRON = (LINEAR, "moe", FULL, "mlp")
#: Layers of Zamba2's class where the file lists none, and which of them are hybrid.
_ZAMBA2_LAYERS, _ZAMBA2_HYBRID = 54, frozenset({6, 12, 18, 24, 30, 36, 42, 47, 51})
#: Letters of `hybrid_override_pattern`.
LETTERS = {"M": LINEAR, "*": FULL, "-": "mlp", "E": "moe"}


def mamba1(config: Config) -> Layers:
    """Mamba-1 on every layer, `intermediate_size` wide, else expand x hidden."""
    return uniform(config, (_mamba1(config, config.optional("intermediate_size", least=1)),), "mamba")


def mamba2(config: Config) -> Layers:
    """Mamba-2 on every layer."""
    return uniform(config, _mamba2(config), "mamba")


def _mamba1(config: Config, inner: int | None = None) -> Mamba1:
    return Mamba1(
        inner_dim=inner or config.integer("expand", "mamba_expand", default=2) * config.integer(*fields.HIDDEN),
        state_dim=config.integer("state_size", "mamba_d_state", default=16),
        conv_kernel=config.integer("conv_kernel", "mamba_d_conv", default=4),
        state_dtype=config.state_dtype(),
    )


def _mamba2(config: Config) -> States:
    heads = config.integer("mamba_num_heads", "mamba_n_heads", "num_heads", "n_mamba_heads")
    # `head_dim` is the mixer's only where there is no attention beside it.
    width = config.get("head_dim" if config.model_type == "mamba2" else "mamba_head_dim", "mamba_d_head", "mamba_headdim")
    if width in ("auto", None):
        inner = config.optional("mamba_d_ssm", least=1) or config.integer("mamba_expand", "expand") * config.integer(*fields.HIDDEN)
        width = inner // heads
    return (
        Mamba2(
            heads=heads,
            head_dim=config.checked(width, "mamba_d_head"),
            state_dim=config.integer("ssm_state_size", "mamba_d_state", "state_size"),
            groups=config.integer("n_groups", "mamba_n_groups"),
            conv_kernel=config.integer("conv_kernel", "mamba_d_conv"),
            state_dtype=config.state_dtype(),
        ),
    )


def jamba(config: Config) -> Layers:
    """Mamba-1; one layer in `attn_layer_period` is attention, `attn_layer_offset` from its start."""
    return by_type(config, _jamba_rule, {FULL: fields.full, LINEAR: lambda c: (_mamba1(c),)}, key="layers_block_type")


def _jamba_rule(config: Config, count: int) -> list[str]:
    period, offset = config.integer("attn_layer_period"), config.integer("attn_layer_offset", least=0)
    return [FULL if i % period == offset else LINEAR for i in range(count)]


def bamba(config: Config) -> Layers:
    """Mamba-2; layers in `attn_layer_indices` are attention."""
    return by_type(config, _bamba_rule, {FULL: fields.full, LINEAR: _mamba2})


def _bamba_rule(config: Config, count: int) -> list[str]:
    full = config.indices("attn_layer_indices", count) or frozenset()
    return [FULL if i in full else LINEAR for i in range(count)]


def granite_hybrid(config: Config) -> Layers:
    """Mamba-2 and attention as `layer_types` or `layers_block_type` lists them; a file without a list is all Mamba-2."""
    key = "layer_types" if "layer_types" in config.raw else "layers_block_type"
    return by_type(config, lambda _, count: [LINEAR] * count, {FULL: fields.full, LINEAR: _mamba2}, key=key)


def parallel(config: Config) -> Layers:
    """Attention and Mamba-2 side by side in every layer."""
    return uniform(config, (*fields.full(config), *_mamba2(config)), "hybrid")


def nemotron_h(config: Config) -> Layers:
    """Mamba-2, attention and layers without a cache: letters in `hybrid_override_pattern`, or names in `layers_block_type`.

    Their number is the number of layers, whatever `num_hidden_layers` says; a file without either has the class's four.
    """
    listed = _pattern(config, "hybrid_override_pattern", "layers_block_type", "layer_types")
    types = listed or list(_NEMOTRON)
    drafts = draft_count(config)
    tail = (_pattern(config, "mtp_hybrid_override_pattern", "mtp_layers_block_type") or [FULL, "moe"]) if drafts else []
    layers = built(config, types, {FULL: _nemotron_attention, LINEAR: _mamba2}, tail * drafts)
    return layers if listed else layers._replace(notes=("config.json lists no layers: the class then has four of its own",))


def _pattern(config: Config, letters: str, *lists: str) -> list[str] | None:
    pattern = config.get(letters)
    if isinstance(pattern, list) and pattern and all(isinstance(item, str) and len(item) == 1 for item in pattern):
        pattern = "".join(pattern)
    if not isinstance(pattern, str):
        found = next((name for name in lists if config.get(name) is not None), lists[0])
        return listed_types(config, 0, found)
    for letter in pattern:
        if letter not in LETTERS:
            raise InvalidConfigError(
                f"config.json: '{letters}' holds {letter!r}, and knows M (Mamba), * (attention), - (MLP) and E (experts)"
            )
    return [LETTERS[letter] for letter in pattern]


def _nemotron_attention(config: Config) -> States:
    return (fields.read_heads(config, dim=("attention_head_dim", "head_dim")).full(),)


def zamba(config: Config) -> Layers:
    """Mamba-1; hybrid layers put a shared attention before it, whose heads are 2 x hidden / heads wide."""
    attention, mixer = _wide_heads(config).full(), _mamba1(config)
    return by_type(config, _zamba_rule, {LINEAR: lambda _: (mixer,), HYBRID: lambda _: (attention, mixer)}, key="layers_block_type")


def zamba2(config: Config) -> Layers:
    """Mamba-2; hybrid layers put a shared attention before it, whose heads are 2 x hidden / heads wide."""
    attention, mixer = _wide_heads(config).full(), _zamba2_mixer(config)
    return by_type(config, _zamba2_rule, {LINEAR: lambda _: (mixer,), HYBRID: lambda _: (attention, mixer)}, key="layers_block_type")


def _wide_heads(config: Config) -> Heads:
    query = config.integer(*fields.QUERY_HEADS)
    width = config.optional("head_dim", "attention_head_dim", least=1) or config.checked(
        2 * config.integer(*fields.HIDDEN) // query, "hidden_size"
    )
    return Heads(query, config.optional("num_key_value_heads", least=1) or query, width)


def _zamba_rule(config: Config, count: int) -> list[str]:
    period, offset = config.integer("attn_layer_period"), config.integer("attn_layer_offset", least=0)
    rest = [HYBRID if i % period == offset else LINEAR for i in range(max(count - 3, 0))]
    return [LINEAR, LINEAR, HYBRID, *rest][:count]


def _zamba2_rule(_config: Config, count: int) -> list[str]:
    """The class's own list. Raises InvalidConfigError, as the class does, for another number of layers."""
    if count != _ZAMBA2_LAYERS:
        raise InvalidConfigError(
            f"config.json: 'num_hidden_layers' is {count}, and a zamba2 model without 'layers_block_type' has {_ZAMBA2_LAYERS} layers",
            "add 'layers_block_type', a type a layer",
        )
    return [HYBRID if i in _ZAMBA2_HYBRID else LINEAR for i in range(count)]


def _zamba2_mixer(config: Config) -> Mamba2:
    inner = config.integer("mamba_expand", default=2) * config.integer(*fields.HIDDEN)
    if config.has("mamba_headdim") and not config.has("n_mamba_heads"):
        width = config.integer("mamba_headdim")
        heads = config.checked(inner // width, "mamba_headdim")
    else:
        heads = config.integer("n_mamba_heads")
        width = config.checked(inner // heads, "n_mamba_heads")
    return Mamba2(
        heads=heads,
        head_dim=width,
        state_dim=config.integer("mamba_d_state", "state_size"),
        groups=config.integer("mamba_ngroups", "n_groups"),
        conv_kernel=config.integer("mamba_d_conv", "conv_dimension"),
        state_dtype=config.state_dtype(),
    )
