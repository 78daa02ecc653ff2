"""Write kvcalc/sources/hf/families/class_defaults.json: what a config.json leaves to the config class of its model_type.

    python tools/generate_class_defaults.py          needs transformers 5.24; needs no torch and no network

Three tables:

    untyped    the model_types whose class does not say of each layer what it is: the cache then follows the file's words for windows
    defaults   model_type → the class's own default of each field that can change the size of a cache
    text       a composite model_type (image, audio, …) → the model_type of its language model, where the file does not say

Read from the class itself, before `__post_init__` derives anything: the derivations are rules, and rules stand in the families.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import re
import runpy
from pathlib import Path
from typing import Any

import transformers
from transformers import CONFIG_MAPPING
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

FAMILIES = Path(__file__).parent.parent / "kvcalc" / "sources" / "hf" / "families"

#: Fields that can change a layer's states or the memory beside a cache, and nothing else.
FIELDS = re.compile(
    r"""
    num_hidden_layers|n_layers?|num_layers|decoder_layers|num_decoder_layers|decoder_num_hidden_layers|num_blocks|num_layers_per_stack
    |hidden_size|n_embd|d_model|emb_dim|lru_width
    |num_attention_heads|n_heads?|num_heads|num_decoder_attention_heads|decoder_attention_heads|decoder_num_attention_heads
    |num_key_value_heads|num_kv_heads|decoder_num_key_value_heads|num_attention_groups|multi_query|new_decoder_architecture
    |head_dim|v_head_dim|d_kv|kv_channels|attention_head_dim|attention_head_size|attention_hidden_size|pad_head_dim_to_multiple_of
    |swa_.*|cross_num_attention_heads|cross_head_dim|cross_num_key_value_heads
    |num_sliding_attention_heads|num_attention_heads_per_layer
    |sliding_window|sliding_window_size|sliding_window_pattern|use_sliding_window|max_window_layers|attention_window_size
    |local_attention|attention_chunk_size|window_size|global_attn_every_n_layers|prefix_dense_sliding_window_pattern
    |first_k_dense_replace|no_rope_layers|no_rope_layer_interval|keep_window_size|use_bidirectional_attention
    |layer_types|block_types|layers_block_type|local_layer_ids|attn_layer_period|attn_layer_offset|attn_layer_indices|full_attn_idxs
    |layer_group_size|attention_types|attn_layers
    |num_kv_shared_layers|attention_k_eq_v|kv_source_layers|cross_attention_layers|cross_layer_interval
    |kv_lora_rank|q_lora_rank|qk_rope_head_dim|qk_nope_head_dim
    |index_.*|indexer_.*|compress_rates|layer_rope_theta
    |linear_.*_heads|linear_.*_dim|linear_num_heads|short_conv_kernel_size
    |mamba_(?!.*(bias|act|kernels|norm|chunk|dt)).*|n_mamba_heads|ssm_state_size|state_size|n_groups|conv_kernel|conv_dim|expand
    |conv_L_cache|conv_kernel_size|conv1d_width|cca_time[01]|time_step_rank
    |qk_dim_factor|v_dim_factor|hc_count|ple_.*|ngram_size
    |n_input_layers|n_recurrent_layers|n_output_layers|n_recurrent_loops|recurrent_kv_cache_mode|H_cycles|L_cycles
    |loop_.*|max_source_positions|max_position_embeddings|n_positions|n_ctx|max_seq_len|max_target_positions
    |num_nextn_predict_layers|num_mtp_layers|mtp_.*layer_types|mtp_local_layer_ids|mtp_layers_block_type
    |layers|attention_heads|embed_dim|dim_head|d_head|context_length|is_encoder_decoder|encoder_layers|vocab_size
    """,
    re.VERBOSE,
)


def default_of(field: dataclasses.Field[Any]) -> Any:
    """A field's default as JSON, or MISSING where there is none."""
    value = field.default
    if value is dataclasses.MISSING and field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    if isinstance(value, tuple):
        value = list(value)
    return value if value is None or isinstance(value, bool | int | str | list | dict) else dataclasses.MISSING


def class_defaults(config: type) -> dict[str, Any]:
    """The defaults of the fields that can change a cache."""
    found = {field.name: default_of(field) for field in dataclasses.fields(config) if FIELDS.fullmatch(field.name)}
    words = {name: value for name, value in sorted(found.items()) if value is not dataclasses.MISSING and value is not None and value != []}
    return {name: value for name, value in words.items() if name != "is_encoder_decoder" or value}


def has_layer_types(config: type) -> bool:
    """The class names each layer's type, as a field or as what it derives from others."""
    try:
        return hasattr(config(), "layer_types")
    except Exception:  # noqa: BLE001  a class that cannot be built empty says nothing
        return True


def text_type(config: type) -> str | None:
    """The model_type of the language model inside a composite config; None where there is no inner config."""
    try:
        outer = config()
        inner = outer.get_text_config(decoder=True)
    except Exception:  # noqa: BLE001  a class that cannot be built empty has no default language model
        return None
    return None if inner is outer or inner.model_type == outer.model_type else inner.model_type


def main() -> None:
    """Write the file."""
    logging.disable(logging.WARNING)
    defaults: dict[str, dict[str, Any]] = {}
    text: dict[str, str] = {}
    supported = runpy.run_path(str(FAMILIES / "index.py"))["INDEX"]
    for model_type in sorted(CONFIG_MAPPING_NAMES):
        config = CONFIG_MAPPING[model_type]
        inner = text_type(config)
        if inner in supported and model_type not in supported:
            text[model_type] = inner
        elif model_type in supported:
            defaults[model_type] = class_defaults(config)
    head = {
        "source": f"config classes of transformers {transformers.__version__}, written by tools/generate_class_defaults.py",
    }
    untyped = [model_type for model_type in defaults if not has_layer_types(CONFIG_MAPPING[model_type])]
    lines = [f'"source": {json.dumps(head["source"])}', f'"untyped": {json.dumps(untyped)}']
    for name, table in (("text", text), ("defaults", defaults)):
        rows = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in table.items())
        lines.append(f'"{name}": {{\n{rows}\n}}')
    (FAMILIES / "class_defaults.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
