"""Speculative decoding: the layers that it adds, and the tokens that it drafts (vLLM 0.33, config/speculative.py).

    mtp               the model's own draft layers, after its last layer, on the last pipeline stage
    eagle, eagle3     a draft model of one attention layer; its config is not part of the question
    ngram, suffix     no layers

Draft tokens widen the convolution of recurrent layers and add a state of theirs each; they add nothing to attention layers.
With several MTP modules a window keeps as many tokens more as there are draft tokens but one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvcalc.core.errors import EngineRejectsError, UnsupportedArchitectureError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvcalc.core.architecture import Architecture
    from kvcalc.core.states import AnyState

#: Methods whose layers, if any, are known from the model's own config.
METHODS = ("mtp", "eagle", "eagle3", "ngram", "ngram_gpu", "suffix")
#: Methods that run a model of their own.
OTHER_METHODS = ("draft_model", "dflash", "dspark", "extract_hidden_states", "custom_class")

#: Families that vLLM has an MTP model for → draft layers where the config is silent; 0 = the config has to say.
MTP_FAMILIES: dict[str, int] = {
    **dict.fromkeys(
        (
            "bailing_hybrid",
            "deepseek_v3",
            "deepseek_v32",
            "deepseek_v4",
            "ernie4_5_moe",
            "exaone4_5_text",
            "glm4_moe",
            "glm4_moe_lite",
            "glm_moe_dsa",
            "glm_ocr_text",
            "glm5_next_text",
            "hy_v3",
            "hy_v4",
            "mimo",
            "nemotron_h",
            "pangu_ultra_moe",
            "qwen4_exp_text",
        ),
        0,
    ),
    **dict.fromkeys(
        (
            "exaone_moe",
            "longcat_flash",
            "minimax_m3",
            "minimax_m3_text",
            "minimax_m3_vl_text",
            "mimo_v2",
            "mimo_v2_flash",
            "qwen3_5_moe_text",
            "qwen3_5_text",
            "qwen3_next",
            "step3p5",
        ),
        1,
    ),
}
#: Families that vLLM has an MTP model for, whose draft layers' caches kvcalc has no rule for.
_UNKNOWN_DRAFTS = frozenset({"dots3_note_text", "inkling_text", "step5"})
#: Families of which vLLM runs the first draft layer only, however many the checkpoint has.
_FIRST_ONLY = ("mimo_v2", "mimo_v2_flash")

_FULL_KINDS = ("full", "latent")
#: Families whose draft layers are as the model's layers of the same numbers (models/exaone_moe.py).
_AS_FIRST_LAYERS = ("exaone_moe",)
#: Families whose draft layers are as the model's sparse layers, and what a config calls their number (models/*/mtp.py).
_AS_SPARSE_LAYERS: dict[str, tuple[str, ...]] = {
    "glm5_next_text": ("num_nextn_predict_layers",),
    "qwen4_exp_text": ("mtp_num_hidden_layers", "num_nextn_predict_layers"),
}
#: Families whose draft layer sees a window, as their window layers do (models/mimo_v2_mtp.py).
_WINDOW_DRAFTS = ("mimo_v2", "mimo_v2_flash")


def draft_layers(architecture: Architecture, method: str | None, notes: list[str]) -> list[tuple[AnyState, ...]]:
    """The states of each draft layer. Raises EngineRejectsError, UnsupportedArchitectureError."""
    if method == "mtp":
        return _mtp_layers(architecture)
    if method in ("eagle", "eagle3"):
        notes.append(
            f"{method}: one draft layer with the model's own attention assumed; the draft model's config is not part of the question"
        )
        return [_model_attention(architecture, method)]
    return []


def _mtp_layers(architecture: Architecture) -> list[tuple[AnyState, ...]]:
    family, draft = architecture.family, architecture.draft
    if family in _UNKNOWN_DRAFTS:
        raise UnsupportedArchitectureError(f"kvcalc does not know the draft layers that vLLM runs for {family} with speculative_method mtp")
    silent = MTP_FAMILIES.get(family)
    if silent is None:
        raise EngineRejectsError(f"vLLM refuses speculative_method mtp: it has no MTP model for {family}", "leave speculative_method out")
    if family in _AS_FIRST_LAYERS:
        layout = architecture.layers
        return [layout.states[name] for name in layout.order[: draft.count if draft else silent]]
    if draft is None and family in _AS_SPARSE_LAYERS:
        return _sparse_layers(architecture)
    if draft is not None:
        layers = [draft.states[name] for name in draft.order]
        return layers[:1] if family in _FIRST_ONLY else layers
    if not silent:
        raise EngineRejectsError(
            f"vLLM refuses speculative_method mtp: the config of {architecture.id} declares no draft layers", "leave it out"
        )
    return [_model_attention(architecture, "mtp")] * silent


def _sparse_layers(architecture: Architecture) -> list[tuple[AnyState, ...]]:
    """As many of the model's indexed layers as its config declares draft layers. Raises EngineRejectsError."""
    names = _AS_SPARSE_LAYERS[architecture.family]
    declared = next((value for name in names if (value := architecture.traits.get(name, 0)) > 0), 0)
    states = architecture.layers.states.values()
    layer = next((item for item in states if any(state.kind == "index" for state in item)), None)
    if not declared or layer is None:
        raise EngineRejectsError(
            f"vLLM refuses speculative_method mtp: the config of {architecture.id} declares no draft layers", "leave it out"
        )
    return [tuple(state for state in layer if state.kind != "fixed")] * declared


def _model_attention(architecture: Architecture, method: str) -> tuple[AnyState, ...]:
    kinds = ("sliding",) if method == "mtp" and architecture.family in _WINDOW_DRAFTS else _FULL_KINDS
    found = next((state for state in architecture.states if state.kind in kinds), None)
    if found is None:
        raise UnsupportedArchitectureError(f"kvcalc does not know the draft layer of {method} for a model without full attention")
    return (found,)


def draft_tokens(args: Mapping[str, Any], layers: int) -> int:
    """Draft tokens a step; 0 without speculation. Raises UsageError for half a setting, or a method that needs a second model."""
    method, tokens = args["speculative_method"], args["num_speculative_tokens"]
    if method is None:
        if tokens is not None:
            raise UsageError("engine setting num_speculative_tokens needs speculative_method", "such as speculative_method=mtp")
        return 0
    if method in OTHER_METHODS:
        raise UsageError(
            f"speculative_method {method} runs a second model, whose config kvcalc does not take", "one of " + ", ".join(METHODS)
        )
    if tokens is None:
        if method != "mtp":
            raise EngineRejectsError(f"vLLM refuses speculative_method {method} without num_speculative_tokens", "give it")
        return layers
    if method == "mtp" and tokens > layers and tokens % layers:
        raise EngineRejectsError(f"vLLM refuses {tokens} draft tokens of {layers} MTP layers", f"a multiple of {layers}")
    return int(tokens)


def retained_tokens(architecture: Architecture, method: str | None, tokens: int) -> int:
    """Tokens that a window keeps beyond itself: with several MTP modules, all draft tokens but one."""
    declared = architecture.traits.num_nextn_predict_layers
    modules = declared if declared is not None and architecture.family not in _FIRST_ONLY else 1
    return tokens - 1 if method == "mtp" and min(modules, tokens) > 1 else 0


def lookahead_tokens(method: str | None, tokens: int) -> int:
    """Slots that are taken ahead of a step for a drafter that writes K and V (config/vllm.py, num_lookahead_tokens)."""
    return tokens if method in ("mtp", "eagle", "eagle3") else 0
