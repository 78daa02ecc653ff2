"""Architecture → the fields of its model class's config: the way back from a catalogue entry, a YAML or a GGUF header.

    states, in order ──names that the class knows──▶ {"num_hidden_layers": 32, "num_key_value_heads": 8, …}

Only fields that decide the cache are written; the rest (experts, vocabulary, MLP) stays at the class default, which changes no byte
of a cache. Whoever uses the result reads it back and compares: a family that this table does not fit is refused, never guessed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kvcalc.core.architecture import Architecture
    from kvcalc.core.states import AnyState

_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_HIDDEN = ("hidden_size", "n_embd", "d_model")
_CONTEXT = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length")
_QUERY = ("num_attention_heads", "n_head", "n_heads", "num_heads")
_WINDOW = ("sliding_window",)
_TYPES = ("layer_types", "layers_block_type")
#: The inner width of Mamba mixers, itself or as a multiple of the hidden width.
_INNER = ("mamba_d_ssm",)
_EXPAND = ("mamba_expand", "expand")
_HEADS = {
    "query_heads": _QUERY,
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv"),
    "head_dim": ("head_dim", "attention_head_dim"),
    "value_head_dim": ("v_head_dim",),
}

#: For each kind of state: its attribute → the names under which config classes know it, the first that the class has is written.
FIELDS: dict[str, dict[str, tuple[str, ...]]] = {
    "full": _HEADS,
    "sliding": _HEADS | {"window": ("sliding_window", "attention_window_size", "sliding_window_size")},
    "chunked": _HEADS | {"chunk": ("attention_chunk_size",)},
    "latent": {
        "query_heads": _QUERY,
        "latent_dim": ("kv_lora_rank",),
        "rope_dim": ("qk_rope_head_dim",),
        "nope_dim": ("qk_nope_head_dim",),
        "value_head_dim": ("v_head_dim",),
        "window": ("sliding_window",),
    },
    "index": {"index_dim": ("index_head_dim", "indexer_head_dim"), "top_k": ("index_topk",)},
    "mamba1": {
        "state_dim": ("state_size", "mamba_d_state"),
        "conv_kernel": ("conv_kernel", "mamba_d_conv"),
    },
    "mamba2": {
        "heads": ("mamba_num_heads", "mamba_n_heads", "n_mamba_heads", "num_heads"),
        "head_dim": ("mamba_head_dim", "mamba_d_head", "mamba_headdim", "head_dim"),
        "state_dim": ("ssm_state_size", "mamba_d_state", "state_size"),
        "groups": ("mamba_n_groups", "mamba_ngroups", "n_groups"),
        "conv_kernel": ("mamba_d_conv", "conv_kernel"),
    },
    "gated_deltanet": {
        "key_heads": ("linear_num_key_heads",),
        "value_heads": ("linear_num_value_heads",),
        "key_head_dim": ("linear_key_head_dim",),
        "value_head_dim": ("linear_value_head_dim",),
        "conv_kernel": ("linear_conv_kernel_dim",),
    },
    "kda": {"heads": ("linear_num_heads",), "head_dim": ("linear_head_dim",), "conv_kernel": ("linear_conv_kernel_dim",)},
    "short_conv": {"conv_kernel": ("conv_L_cache",)},
}
#: The layer type of a layer with exactly these kinds of states.
_WORDS: dict[tuple[str, ...], str] = {
    ("full",): "full_attention",
    ("sliding",): "sliding_attention",
    ("chunked",): "chunked_attention",
    ("latent",): "full_attention",
    ("latent", "index"): "indexed_attention",
    ("full", "index"): "indexed_attention",
    **{(kind,): "linear_attention" for kind in ("mamba1", "mamba2", "gated_deltanet", "kda", "lightning")},
    ("short_conv",): "conv",
    ("full", "mamba2"): "hybrid",
    ("mamba2", "full"): "hybrid",
    ("none",): "moe",
}


def mirror(architecture: Architecture, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The fields to give to the config class whose own fields, with their defaults, are `defaults`."""
    fields = _Fields(defaults)
    fields.write(_LAYERS, architecture.layers.count)
    fields.write(_CONTEXT, architecture.max_context)
    fields.write(_HIDDEN, architecture.hidden_dim)
    # Full layers first: a field that kinds of attention share is theirs.
    for kind, facts in sorted(_facts(architecture.states).items(), key=lambda item: item[0] != "full"):
        for attribute, names in FIELDS.get(kind, {}).items():
            fields.write(names, facts[attribute])
        inner = facts["heads"] * facts["head_dim"] if kind == "mamba2" else facts.get("inner_dim", 0)
        if inner and architecture.hidden_dim:
            fields.write(_INNER, inner)
            fields.write(_EXPAND, inner // architecture.hidden_dim)
    heads = next((state.to_dict() for state in architecture.states if state.kind in ("full", "sliding", "chunked")), None)
    if heads is not None and heads["query_heads"] and heads["query_heads"] * heads["head_dim"] != architecture.hidden_dim:
        # Classes that derive the width take one from the file too.
        fields.found.setdefault("head_dim", heads["head_dim"])
    if not any(state.kind == "sliding" for state in architecture.states):
        fields.write(_WINDOW, None)
    fields.write(_TYPES, layer_types(architecture))
    found = dict(fields.found)
    adjust = _ADJUST.get(architecture.family)
    return found | adjust(architecture) if adjust else found


def layer_types(architecture: Architecture) -> list[str] | None:
    """A type a layer, in order; None where a layer is of no type that config classes have a word for."""
    layout = architecture.layers
    words: dict[str, str | None] = {}
    for name, states in layout.states.items():
        producer = getattr(states[0], "shares_with", None)
        words[name] = _WORDS.get(tuple(state.kind for state in (layout.layer(producer) if producer is not None else states)))
    types = [words[name] for name in layout.order]
    return None if None in types else [word for word in types if word is not None]


class _Fields:
    """Fields written so far; the first word for a field counts, and only fields that the class has are written."""

    def __init__(self, defaults: Mapping[str, Any]) -> None:
        self.defaults = defaults
        self.found: dict[str, Any] = {}

    def write(self, names: tuple[str, ...], value: object) -> None:
        name = next((name for name in names if name in self.defaults), None)
        if name is not None:
            self.found.setdefault(name, value)


def _facts(states: Iterable[AnyState]) -> dict[str, dict[str, Any]]:
    """The fields of one state of each kind."""
    return {state.kind: state.to_dict() for state in reversed(list(states))}


# Families whose fields say more than the states of one kind.


def _gemma4(architecture: Architecture) -> dict[str, Any]:
    """Widths and KV heads of the two kinds of layers apart; the layers that share stand at the end."""
    facts = _facts(architecture.states)
    window, full = facts["sliding"], facts["full"]
    fields = {"head_dim": window["head_dim"], "global_head_dim": full["head_dim"], "num_key_value_heads": window["kv_heads"]}
    if window["kv_heads"] != full["kv_heads"]:
        fields |= {"attention_k_eq_v": True, "num_global_key_value_heads": full["kv_heads"]}
    return fields | _shared(architecture)


def _gemma3n(architecture: Architecture) -> dict[str, Any]:
    """Shared layers at the end; no sparse activations, which the class takes from numbers that the meta device does not have."""
    return _shared(architecture) | {"activation_sparsity_pattern": [0.0] * architecture.layers.count}


def _shared(architecture: Architecture) -> dict[str, Any]:
    layout = architecture.layers
    return {"num_kv_shared_layers": sum(any(state.kind == "shared" for state in layout.states[name]) for name in layout.order)}


def _jamba(architecture: Architecture) -> dict[str, Any]:
    """One attention layer a period."""
    full = [i for i, word in enumerate(layer_types(architecture) or ()) if word == "full_attention"]
    return {"attn_layer_offset": full[0], "attn_layer_period": full[1] - full[0]} if len(full) > 1 else {}


def _falcon(architecture: Architecture) -> dict[str, Any]:
    return {name: value for name in ("new_decoder_architecture", "multi_query") if (value := architecture.traits.get(name)) is not None}


def _glm_moe_dsa(architecture: Architecture) -> dict[str, Any]:
    """Every layer reads by an index; some read by another layer's."""
    layout = architecture.layers
    owners = {name: any(state.kind == "index" for state in states) for name, states in layout.states.items()}
    return {
        "layer_types": ["indexed_attention"] * layout.count,
        "indexer_types": ["full" if owners[name] else "shared" for name in layout.order],
    }


def _minimax_m3(architecture: Architecture) -> dict[str, Any]:
    """A word of its own for layers with index keys."""
    layout = architecture.layers
    indexed = {name: any(state.kind == "index" for state in states) for name, states in layout.states.items()}
    return {"layer_types": ["minimax_m3_sparse" if indexed[name] else "full_attention" for name in layout.order]}


def _deepseek_v2(_architecture: Architecture) -> dict[str, Any]:
    """Experts that run: the class leaves their number a token open, and its 1407 is no width that the kernels take."""
    return {"num_experts_per_tok": 6, "moe_intermediate_size": 1408}


def _deepseek_v4(architecture: Architecture) -> dict[str, Any]:
    """One latent of `head_dim` for everything; a ratio for each of the two compressions."""
    words, rates = {}, {}
    fields: dict[str, Any] = {}
    for name, states in architecture.layers.states.items():
        facts = _facts(states)
        window = facts["latent"]
        fields |= {"head_dim": window["latent_dim"] + window["rope_dim"], "qk_rope_head_dim": window["rope_dim"]}
        words[name] = "sliding_attention"
        if "compressed" in facts:
            words[name] = "compressed_sparse_attention" if "index" in facts else "heavily_compressed_attention"
            rates[words[name]] = facts["compressed"]["ratio"]
    return fields | {"layer_types": [words[name] for name in architecture.layers.order], "compress_rates": rates}


_ADJUST: dict[str, Callable[[Architecture], dict[str, Any]]] = {
    "deepseek_v2": _deepseek_v2,
    "deepseek_v4": _deepseek_v4,
    "falcon": _falcon,
    "gemma3n_text": _gemma3n,
    **dict.fromkeys(("gemma4_text", "gemma4_unified_text"), _gemma4),
    "glm_moe_dsa": _glm_moe_dsa,
    "jamba": _jamba,
    "minimax_m3_vl_text": _minimax_m3,
}
