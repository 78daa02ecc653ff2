"""Layers that keep a state of fixed size instead of a cache."""

from __future__ import annotations

from kvcalc.questions.techniques.base import Case, Parameter, Ratio, technique
from kvcalc.questions.techniques.layers import build, every, first_heads, query_heads


def _hidden(case: Case) -> int:
    """The hidden width; where the file does not say it, the width of all query heads."""
    known = case.architecture.hidden_dim
    return known or query_heads(case) * int(first_heads(case)["head_dim"])


@technique(
    Parameter("ratio", Ratio(3, 1), "recurrent to attention layers, in turn"),
    Parameter("key_heads", query_heads, "heads of Q and K"),
    Parameter("value_heads", query_heads, "heads of V, each with a matrix"),
    Parameter("key_head_dim", lambda case: int(first_heads(case)["head_dim"]), "rows of a head's matrix"),
    Parameter("value_head_dim", lambda case: int(first_heads(case)["value_head_dim"]), "columns of a head's matrix"),
    Parameter("conv_kernel", 4, "kernel of the short convolution"),
)
def deltanet(case: Case, ratio: Ratio, **fields: int) -> Case:
    """Gated DeltaNet (arXiv:2412.06464; Qwen3-Next): most layers keep one matrix a head, whatever the context.

        fixed = layers x (value_heads x key_head_dim x value_head_dim x 4 B + convolution columns)        independent of T

    24 of 32 layers with 32 heads of 128 x 128: 24 x (2,097,152 B + 12,288 x 3 x 2 B) = 52,101,120 B, and 8 layers as before.
    """
    return every(case, ratio, lambda _: build("gated_deltanet", fields), lambda state: state)


@technique(
    Parameter("ratio", Ratio(3, 1), "recurrent to attention layers, in turn"),
    Parameter("heads", lambda case: 2 * _hidden(case) // 64, "heads of the inner width, which is twice the hidden width"),
    Parameter("head_dim", 64, "rows of a head's matrix"),
    Parameter("state_dim", 128, "columns of a head's matrix"),
    Parameter("groups", 1, "groups of B and C"),
    Parameter("conv_kernel", 4, "kernel of the short convolution"),
)
def mamba2(case: Case, ratio: Ratio, **fields: int) -> Case:
    """Mamba-2 (arXiv:2405.21060): most layers keep one head_dim x state_dim matrix a head, whatever the context.

        fixed = layers x (heads x head_dim x state_dim x 4 B + convolution columns)        independent of T

    24 of 32 layers with 128 heads of 64 x 128: 24 x (4,194,304 B + 8,448 x 3 x 2 B) = 101,879,808 B, and 8 layers as before.
    """
    return every(case, ratio, lambda _: build("mamba2", fields), lambda state: state)
