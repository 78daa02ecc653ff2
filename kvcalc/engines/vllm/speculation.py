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
from kvcalc.core.states import Fixed, Full, Index, Latent, Sliding
from kvcalc.engines.vllm.families import family_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvcalc.core.architecture import Architecture
    from kvcalc.core.states import AnyState

#: Methods whose layers, if any, are known from the model's own config.
METHODS = ("mtp", "eagle", "eagle3", "ngram", "ngram_gpu", "suffix")
#: Methods that run a model of their own.
OTHER_METHODS = ("draft_model", "dflash", "dspark", "extract_hidden_states", "custom_class")


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
    rule = family_of(family).draft
    if rule is None:
        raise EngineRejectsError(f"vLLM refuses speculative_method mtp: it has no MTP model for {family}", "leave speculative_method out")
    if not rule.known:
        raise UnsupportedArchitectureError(f"kvcalc does not know the draft layers that vLLM runs for {family} with speculative_method mtp")
    if rule.as_model:
        layout = architecture.layers
        return [layout.states[name] for name in layout.order[: draft.count if draft else rule.silent]]
    if draft is None and rule.as_sparse:
        return _sparse_layers(architecture, rule.as_sparse)
    if draft is not None:
        layers = [draft.states[name] for name in draft.order]
        return layers[:1] if rule.first_only else layers
    if not rule.silent:
        raise EngineRejectsError(
            f"vLLM refuses speculative_method mtp: the config of {architecture.id} declares no draft layers", "leave it out"
        )
    return [_model_attention(architecture, "mtp")] * rule.silent


def _sparse_layers(architecture: Architecture, names: tuple[str, ...]) -> list[tuple[AnyState, ...]]:
    """As many of the model's indexed layers as its config declares draft layers. Raises EngineRejectsError."""
    declared = next((value for name in names if (value := architecture.traits.get(name, 0)) > 0), 0)
    states = architecture.layers.states.values()
    layer = next((item for item in states if any(isinstance(state, Index) for state in item)), None)
    if not declared or layer is None:
        raise EngineRejectsError(
            f"vLLM refuses speculative_method mtp: the config of {architecture.id} declares no draft layers", "leave it out"
        )
    return [tuple(state for state in layer if not isinstance(state, Fixed))] * declared


def _model_attention(architecture: Architecture, method: str) -> tuple[AnyState, ...]:
    rule = family_of(architecture.family).draft
    classes = (Sliding,) if method == "mtp" and rule is not None and rule.window else (Full, Latent)
    found = next((state for state in architecture.states if isinstance(state, classes)), None)
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
    rule = family_of(architecture.family).draft
    modules = declared if declared is not None and not (rule is not None and rule.first_only) else 1
    return tokens - 1 if method == "mtp" and min(modules, tokens) > 1 else 0


def lookahead_tokens(method: str | None, tokens: int) -> int:
    """Slots that are taken ahead of a step for a drafter that writes K and V (config/vllm.py, num_lookahead_tokens)."""
    return tokens if method in ("mtp", "eagle", "eagle3") else 0
