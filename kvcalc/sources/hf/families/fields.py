"""The spellings of the common fields, and attention heads read from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kvcalc.core.errors import InvalidConfigError
from kvcalc.core.states import Chunked, Full, Sliding

if TYPE_CHECKING:
    from kvcalc.core.states import AnyState
    from kvcalc.sources.hf.config import Config

LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "layers", "num_blocks")
HIDDEN = ("hidden_size", "n_embd", "d_model", "emb_dim", "embed_dim")
QUERY_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "num_attention_groups", "multi_query_group_num")
HEAD_DIM = ("head_dim", "d_kv", "kv_channels", "attention_head_size", "dim_head", "d_head")
WINDOW = ("sliding_window", "sliding_window_size")
MAX_CONTEXT = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "max_sequence_length",
    "seq_length",
    "model_max_length",
    "max_target_positions",
    "context_length",
    "n_ctx",
)
DRAFT_LAYERS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "num_mtp_layers")


class Heads(NamedTuple):
    """Attention heads of one kind of layer; `value` is None where V is as wide as K."""

    query: int
    kv: int
    dim: int
    value: int | None = None

    def full(self) -> Full:
        """Full attention with these heads."""
        return Full(kv_heads=self.kv, head_dim=self.dim, value_head_dim=self.value, query_heads=self.query)

    def sliding(self, window: int, *, nominal: bool = False) -> Sliding:
        """Sliding-window attention with these heads."""
        return Sliding(
            window=window, nominal=nominal, kv_heads=self.kv, head_dim=self.dim, value_head_dim=self.value, query_heads=self.query
        )

    def chunked(self, chunk: int) -> Chunked:
        """Chunked attention with these heads."""
        return Chunked(chunk=chunk, kv_heads=self.kv, head_dim=self.dim, value_head_dim=self.value, query_heads=self.query)


def read_heads(
    config: Config,
    *,
    query: tuple[str, ...] = QUERY_HEADS,
    kv: tuple[str, ...] = KV_HEADS,
    dim: tuple[str, ...] = HEAD_DIM,
    value: tuple[str, ...] = (),
) -> Heads:
    """Heads as most files say them: KV heads default to the query heads, the width to hidden // query heads."""
    query_heads = config.integer(*query)
    kv_heads = config.optional(*kv, least=1) or query_heads
    if query_heads % kv_heads:
        raise InvalidConfigError(
            f"config.json: {query_heads} query heads ('{query[0]}') are not a multiple of {kv_heads} KV heads ('{kv[0]}')"
        )
    head_dim = config.optional(*dim, least=1) or derived_width(config, query_heads)
    value_dim = config.optional(*value, least=1) if value else None
    return Heads(query_heads, kv_heads, head_dim, None if value_dim == head_dim else value_dim)


def derived_width(config: Config, query_heads: int) -> int:
    """The width hidden // query heads. Raises InvalidConfigError where that leaves a rest, unless the class's own default leaves one (GLM-4.5)."""
    hidden = config.integer(*HIDDEN)
    if hidden % query_heads and not _rounds_down(config):
        raise InvalidConfigError(
            f"config.json: 'hidden_size' {hidden} is not a multiple of 'num_attention_heads' {query_heads}, and there is no 'head_dim'"
        )
    return config.checked(hidden // query_heads, HIDDEN[0])


def _rounds_down(config: Config) -> bool:
    hidden, heads = config.defaults.get("hidden_size"), config.defaults.get("num_attention_heads")
    return bool(hidden and heads and hidden % heads)


def read_window(config: Config, *names: str) -> int:
    """The window of sliding layers. Raises InvalidConfigError where the file has such layers and no window."""
    window = config.optional(*(names or WINDOW), least=1)
    if window is None:
        raise InvalidConfigError(f"config.json: a {config.model_type} model has sliding layers, and no '{(names or WINDOW)[0]}'")
    return window


def full(config: Config) -> tuple[AnyState, ...]:
    """Full attention with the common heads."""
    return (read_heads(config).full(),)


def sliding(config: Config) -> tuple[AnyState, ...]:
    """Sliding-window attention with the common heads."""
    return (read_heads(config).sliding(read_window(config)),)


def chunked(config: Config) -> tuple[AnyState, ...]:
    """Chunked attention with the common heads."""
    return (read_heads(config).chunked(read_window(config, "attention_chunk_size")),)
