"""What a single engine needs to know of a model beyond its states, under the config's own names, each of its own type.

    architecture.traits.index_topk        2048, or None where the file does not say

A file that gives one of them a value of another type is refused where it is read; an engine never meets one.
"""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass
from typing import Annotated, Any

from kvcalc.core.fields import Either, Exactly, Flag, NaturalInt, Value, Whole, field_names

#: One number for the model, or one for each layer.
ForLayers = Annotated[Whole | tuple[Whole | None, ...], Either("a whole number, or a list with one for each layer")]


@dataclass(init=False, eq=False, repr=False)
class Traits(Value):
    """Facts that engines key their rules on; None is what the file does not say.

    Names without a prefix are fields of config.json and mean what they mean there. Those that kvcalc's readers add:

    outer_model_type, is_multimodal     the wrapper around the language model
    quantization                        quantization_config's `quant_method`; kv_cache_* are its words about the cache
    weight_types                        how the released checkpoint is quantised: fp8, mxfp4 experts, int4 experts
    class_defaults                      widths and counts of heads that the file leaves to its class
    cache_windows                       windows that the file gives to a class without layer types: one, or one a layer; 0 for none
    incomplete_group                    layers after the last whole group
    longest_dense_prefill, soft_prompt  tokens beyond which a prefill caches nothing; tokens in front of every sequence
    declared                            fields that change no byte, on which engines refuse to load a class; true for a list that is there
    gguf_*                              what llama.cpp's loader keeps of a GGUF file besides its layers
    """

    # draft layers
    num_nextn_predict_layers: NaturalInt | None = None
    mtp_num_hidden_layers: NaturalInt | None = None
    num_mtp_modules: NaturalInt | None = None
    num_mtp_layers: NaturalInt | None = None
    # experts
    num_experts: ForLayers | None = None
    n_routed_experts: ForLayers | None = None
    num_local_experts: ForLayers | None = None
    moe_num_experts: ForLayers | None = None
    # recurrent states
    mamba_ssm_dtype: str | None = None
    mamba_ssm_cache_dtype: str | None = None
    incomplete_group: NaturalInt | None = None
    use_mla_nope: Flag | None = None
    # encoder and decoder
    is_encoder_decoder: Flag | None = None
    is_decoder: Flag | None = None
    encoder_layers: NaturalInt | None = None
    # attention
    new_decoder_architecture: Flag | None = None
    multi_query: Flag | None = None
    index_topk: NaturalInt | None = None
    index_kpool_compress: Flag | None = None
    sliding_window: ForLayers | None = None
    sliding_window_size: ForLayers | None = None
    use_sliding_window: Flag | None = None
    attention_chunk_size: ForLayers | None = None
    add_swa_attention_sink_bias: Flag | None = None
    add_full_attention_sink_bias: Flag | None = None
    swa_attention_sink_enabled: Flag | None = None
    attention_sinks: Flag | None = None
    learnable_sink: Flag | None = None
    use_bidirectional_attention: Annotated[Flag | str, Either("true, false or a word")] | None = None
    attn_logit_softcapping: Annotated[float | Flag, Either("a number")] | None = None
    layer_types: tuple[str, ...] | None = None
    sliding_window_pattern: Annotated[NaturalInt | str, Either("a whole number, or a word of letters")] | None = None
    window_size: NaturalInt | None = None
    class_defaults: tuple[str, ...] | None = None
    index_source_layer_ids: tuple[NaturalInt, ...] | None = None
    engram_layer_ids: tuple[NaturalInt, ...] | None = None
    emb_neighbor_num: NaturalInt | None = None
    cache_windows: Annotated[NaturalInt | tuple[NaturalInt, ...], Either("a whole number, or a list with one for each layer")] | None = None
    longest_dense_prefill: NaturalInt | None = None
    soft_prompt: NaturalInt | None = None
    # beside the cache
    vocab_size: NaturalInt | None = None
    # the wrapper and the checkpoint
    declared: Annotated[dict[str, bool | int | str], Either("a mapping of fields to words, numbers or truth values")] | None = None
    outer_model_type: str | None = None
    is_multimodal: Flag | None = None
    quantization: str | None = None
    weight_types: str | None = None
    kv_cache_quant_algo: str | None = None
    kv_cache_scheme: Annotated[dict[str, Any] | str, Either("a mapping or a word")] | None = None
    # GGUF
    gguf_architecture: str | None = None
    gguf_expanded_latent: Flag | None = None
    gguf_value_length: NaturalInt | None = None
    gguf_head_dims: Annotated[tuple[NaturalInt, ...], Exactly(strict=False, min_length=2, max_length=2)] | None = None
    gguf_lacks_windows: Flag | None = None
    gguf_value_width: NaturalInt | None = None
    gguf_keeps_drafts: tuple[NaturalInt, ...] | None = None
    gguf_router: Flag | None = None
    gguf_causal: Flag | None = None

    def __init__(self, **given: Any) -> None:
        """The facts that are given by name. Written out, because making it anew at every start costs more than reading a model."""
        unknown = next((name for name in given if name not in self.__dataclass_fields__), None)
        if unknown is not None:
            raise TypeError(f"no trait is called {unknown!r}")
        vars(self).update(given)

    def get(self, name: str, default: Any = None) -> Any:
        """The fact whose name a table holds; `default` where the file does not say it, or where the table names none."""
        found = getattr(self, name) if name else None
        return default if found is None else found

    def given(self) -> dict[str, Any]:
        """What the file says, in the order of the fields."""
        return {name: value for name in field_names(self) if (value := getattr(self, name)) is not None}

    def __repr__(self) -> str:
        return f"Traits({', '.join(f'{name}={value!r}' for name, value in self.given().items())})"

    def __hash__(self) -> int:
        return hash(tuple(self.given()))

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")


#: Of a model about which no engine needs to know more.
NO_TRAITS = Traits()
