"""States of recurrent layers on one GPU (vLLM 0.33, model_executor/layers/mamba/mamba_utils.py).

    mamba1        (K - 1) x inner            inner x state
    mamba2        (K - 1 + s) x (inner + 2 x groups x state)    heads x head_dim x state
    gated_deltanet, kda   (K - 1 + s) x channels                heads x key x value
    lightning     heads x head_dim x head_dim                   short_conv   (K - 1 + s) x channels

s = draft tokens of a step. Channels, heads and groups divide over tensor parallel ranks; a single group is repeated on
every rank. A mode decides how many states a request holds: 1 + s without prefix caching ("none"), else 2 + s and, where the
kernel can hand out a state from inside a prefill, one checkpoint more ("align").
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, assert_never

from kvcalc.core.errors import EngineRejectsError, UnsupportedArchitectureError
from kvcalc.core.formats import ALIASES, get_format
from kvcalc.core.states import (
    Chunked,
    Compressed,
    Cross,
    Fixed,
    Full,
    GatedDeltaNet,
    Index,
    Kda,
    Latent,
    Lightning,
    Mamba1,
    Mamba2,
    Nothing,
    RgLru,
    Rwkv,
    Shared,
    ShortConv,
    Sliding,
)
from kvcalc.engines.vllm.classes import CLASSES
from kvcalc.engines.vllm.families import FLASH_KDA_WRAPPERS, family_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvcalc.core.architecture import Architecture
    from kvcalc.core.states import AnyState, Recurrent
    from kvcalc.core.traits import Traits

#: Token alignment of the checkpoints that FlashInfer's prefill of gated DeltaNet hands out.
GDN_CHECKPOINT_ALIGNMENT = 64
#: The card on which vLLM runs that prefill (Blackwell needs CUDA 13 for it, which is not assumed).
GDN_CHECKPOINT_CAPABILITY = 90

#: What FlashKDA's kernel takes: generations of cards, and heads.
FLASH_KDA_MAJORS, FLASH_KDA_HEAD = (9, 10, 12), 128


class Tensor(NamedTuple):
    """One tensor of a state: rows x elements of a row on one GPU, and on all of them together."""

    name: str
    rows: int
    elements: int
    whole: int
    format: str

    @property
    def bytes(self) -> int:
        """On one GPU."""
        return get_format(self.format).row_bytes(self.elements) * self.rows

    @property
    def whole_bytes(self) -> int:
        """Of the undivided state: what one copy takes."""
        return get_format(self.format).row_bytes(self.whole) * self.rows


class Types(NamedTuple):
    """Formats of convolution columns and of recurrent matrices."""

    conv: str
    matrix: str
    matrix_is_auto: bool


def read_types(family: str, traits: Traits, args: Mapping[str, Any], own: str) -> Types:
    """`mamba_cache_dtype` for columns; `mamba_ssm_cache_dtype`, else the config's word where the family has one, for matrices."""
    conv = own if args["mamba_cache_dtype"] == "auto" else ALIASES[args["mamba_cache_dtype"]]
    word = args["mamba_ssm_cache_dtype"]
    matrix = family_of(family).matrix
    if word == "auto" and matrix is not None:
        name, silent = matrix
        word = traits.get(name, silent)
    if word == "auto":
        return Types(conv, conv, matrix_is_auto=True)
    return Types(conv, ALIASES.get(word, word), matrix_is_auto=False)


def has_flash_kda(architecture: Architecture) -> bool:
    """The model's KDA layers can run FlashKDA."""
    known = CLASSES.get(architecture.class_name)
    wrapper = architecture.traits.outer_model_type
    return family_of(architecture.family).flash_kda or (known is not None and known.flash_kda) or wrapper in FLASH_KDA_WRAPPERS


class Prefill(NamedTuple):
    """What decides the kernels of a prefill: the family, compute capability x 10, the model's type, whether its KDA gate is FlashKDA's."""

    family: str
    capability: int
    own: str
    flash_kda: bool = False


def checkpoint_alignment(state: AnyState, prefill: Prefill) -> int | None:
    """The token alignment that this layer declares for states from inside a prefill; None where it declares none (align mode only)."""
    match state:
        case GatedDeltaNet():
            runs = prefill.capability == GDN_CHECKPOINT_CAPABILITY and family_of(prefill.family).gdn_checkpoint
            return GDN_CHECKPOINT_ALIGNMENT if runs else None
        case Mamba2() | Fixed():
            return 1
        case Kda() | Mamba1() | Lightning() | ShortConv() | Rwkv() | RgLru():
            return None
        case Full() | Sliding() | Chunked() | Cross() | Shared() | Nothing() | Latent() | Index() | Compressed():
            return None
        case _:
            assert_never(state)


def keeps_checkpoint(state: AnyState, prefill: Prefill, step: int | None) -> bool:
    """A request holds one state more. `step`: what all recurrent layers agree on, None where one of them declares nothing.

    FlashKDA hands states out without declaring an alignment; gated DeltaNet only where every other recurrent layer does as well.
    """
    match state:
        case Kda():
            return _is_flash_kda(state, prefill)
        case Mamba2():
            return True
        case _:
            return step is not None and checkpoint_alignment(state, prefill) is not None


def _is_flash_kda(state: Kda, prefill: Prefill) -> bool:
    kernel = (prefill.capability // 10 in FLASH_KDA_MAJORS, state.head_dim == FLASH_KDA_HEAD, prefill.own == "bf16")
    return prefill.flash_kda and all(kernel)


def _divide(count: int, ranks: int, what: str) -> int:
    if count % ranks:
        raise EngineRejectsError(f"tensor parallel size {ranks} cannot split the {count} {what}", f"choose a size that divides {count}")
    return count // ranks


def _conv(state: Recurrent, types: Types, ranks: int, spec: int, channels: int | None = None) -> Tensor:
    width = state.conv_channels if channels is None else channels
    part = _divide(width, ranks, f"convolution channels of {state.kind}")
    return Tensor("conv", state.conv_kernel - 1 + spec, part, state.conv_channels, types.conv)


def _matrix(state: Recurrent, dtype: str, ranks: int) -> Tensor:
    heads, elements = state.matrix()
    part = _divide(heads, ranks, f"recurrent heads of {state.kind}")
    return Tensor("recurrent", 1, part * elements, heads * elements, dtype)


def _mamba2(state: Mamba2, types: Types, ranks: int, spec: int) -> tuple[Tensor, ...]:
    if state.groups % ranks and state.groups != 1:
        raise EngineRejectsError(
            f"vLLM refuses: tensor parallel size {ranks} does not divide the {state.groups} groups of mamba2",
            f"a divisor of {state.groups}",
        )
    extra = ranks - 1 if state.groups % ranks else 0
    channels = state.conv_channels + 2 * extra * state.state_dim
    return _conv(state, types, ranks, spec, channels), _matrix(state, types.matrix, ranks)


def _kda(state: Kda, types: Types, ranks: int, spec: int) -> tuple[Tensor, ...]:
    if types.matrix not in ("fp32", "bf16") and not types.matrix_is_auto:
        raise EngineRejectsError("vLLM keeps KDA states in float32 or bfloat16 only", "leave mamba_ssm_cache_dtype out")
    return _conv(state, types, ranks, spec), _matrix(state, "fp32" if types.matrix_is_auto else types.matrix, ranks)


#: Rows of the convolution over n-gram embeddings by its class's defaults: a kernel of 4, dilated by n-grams of 3.
NGRAM_ROWS = (4 - 1) * 3


def _ngram_conv(state: Fixed, types: Types, spec: int) -> tuple[Tensor, ...]:
    """Whole on every rank. Raises UnsupportedArchitectureError for other states of fixed size, and for rows that do not add up."""
    if state.name != "ngram_conv":
        raise UnsupportedArchitectureError(f"vLLM 0.33 has no layers of kind {state.kind}")
    if state.elements % NGRAM_ROWS:
        raise UnsupportedArchitectureError(
            f"kvcalc knows n-gram convolutions of {NGRAM_ROWS} rows under vLLM, and {state.elements:,} elements are none"
        )
    width = state.elements // NGRAM_ROWS
    return (Tensor("conv", NGRAM_ROWS + spec, width, width, types.conv),)


def tensors(state: AnyState, types: Types, ranks: int, spec: int) -> tuple[Tensor, ...]:
    """The tensors of one recurrent state on one GPU.

    Raises EngineRejectsError for a split that is impossible, UnsupportedArchitectureError for a state that vLLM has no layer of.
    """
    match state:
        case Mamba1():
            return _conv(state, types, ranks, 0), _matrix(state, types.matrix, ranks)
        case Mamba2():
            return _mamba2(state, types, ranks, spec)
        case GatedDeltaNet():
            return _conv(state, types, ranks, spec), _matrix(state, types.matrix, ranks)
        case Kda():
            return _kda(state, types, ranks, spec)
        case Lightning():
            return (_matrix(state, types.conv, ranks),)
        case ShortConv():
            return (_conv(state, types, ranks, spec),)
        case Fixed():
            return _ngram_conv(state, types, spec)
        case Rwkv() | RgLru() | Full() | Sliding() | Chunked() | Cross() | Shared() | Nothing() | Latent() | Index() | Compressed():
            raise UnsupportedArchitectureError(f"vLLM 0.33 has no layers of kind {state.kind}")
        case _:
            assert_never(state)
