"""Storage formats: the exact bytes of one row, scales and zero points included.

    row of v vectors of w elements  =  v x (ceil-free blocks of w  +  what each vector carries)

    bf16        2 B an element                                  fp8      1 B an element, scale with the weights
    int8        1 B an element + 4 B (one fp32 scale) a vector  int4     half a byte + 4 B a vector
    q8_0        34 B per 32 elements                            nvfp4    9 B per 16 elements
    fp8_ds_mla  MLA rows only: fp8 latent, one fp32 scale per 128, rotary part in bf16

A vector is what one head stores for one token (`head_dim` wide); a latent or an index key is a row of one vector.
A width that a format cannot hold (not a multiple of its block) is an error, never a fraction.

Sources: ggml-common.h block sizes; vLLM 0.33 triton_attn.py, flashinfer.py, turboquant/config.py; SGLang 0.5.23
memory_pool.py; TensorRT-LLM cache_layer.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvcalc.core.errors import EngineRejectsError, UsageError, nearest
from kvcalc.core.fields import Value
from kvcalc.core.units import clean


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Format(Value):
    """`block_bytes` for every `block` elements, and `vector_bytes` more for each vector (scale, zero point)."""

    name: str
    block: int
    block_bytes: int
    vector_bytes: int = 0
    about: str = ""

    def row_bytes(self, width: int, vectors: int = 1) -> int:
        """Bytes of `vectors` vectors of `width` elements. Raises UsageError if the width does not fill whole blocks."""
        blocks, rest = divmod(width, self.block)
        if rest:
            raise UsageError(
                f"format {self.name} stores blocks of {self.block} elements, and {width} is not a multiple of {self.block}",
                "choose a format without blocks for this model, such as fp8 or bf16",
            )
        return vectors * (blocks * self.block_bytes + self.vector_bytes)

    def key_bytes(self, width: int, vectors: int) -> int:
        """Bytes of the K vectors of one token."""
        return self.row_bytes(width, vectors)

    def value_bytes(self, width: int, vectors: int) -> int:
        """Bytes of the V vectors of one token."""
        return self.row_bytes(width, vectors)

    def latent_bytes(self, latent: int, rope: int) -> int:
        """Bytes of one MLA row: the compressed latent and the shared rotary key side by side."""
        return self.row_bytes(latent + rope)

    @property
    def formula(self) -> str:
        """The row in words: `34 B per 32 elements`."""
        text = f"{self.block_bytes} B per element" if self.block == 1 else f"{self.block_bytes} B per {self.block} elements"
        return text + (f" + {self.vector_bytes} B per vector" if self.vector_bytes else "")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PackedLatent(Format):
    """An MLA row packed for sparse kernels: `latent` in blocks with scales inline, the rotary part in its own width.

    `fp8_ds_mla`: 512 + 512/128 x 4 + 64 x 2 = 656 B.  `nvfp4_ds_mla`: 512/2 + 512/16 + 64 x 1 = 352 B.
    DeepSeek-V4's rows of the first name hold the rotary 64 among their 512: 448 + 64 x 2 + 8 scales of a byte = 584 B.
    """

    rope_bytes: int = 1

    def row_bytes(self, width: int, vectors: int = 1) -> int:
        """Refused: only latents have this layout."""
        raise UsageError(f"format {self.name} packs MLA latents and cannot hold a row of {vectors} x {width}", "use fp8 or bf16")

    def latent_bytes(self, latent: int, rope: int) -> int:
        """Bytes of one packed MLA row."""
        if latent % self.block:
            raise UsageError(f"format {self.name} packs latents in blocks of {self.block}, and {latent} is not a multiple of it")
        return latent // self.block * self.block_bytes + rope * self.rope_bytes


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TurboQuant(Format):
    """vLLM's packed K+V row: K in `key_bits` (8 = fp8, no norm) or with a 2 B norm, V in `value_bits` with 4 B, even in all.

    D = 128, `turboquant_k8v4`: even(128 + 64 + 4) = 196 B for K+V of one head.
    """

    key_bits: int = 8
    value_bits: int = 4

    def key_bytes(self, width: int, vectors: int) -> int:
        """Bytes of the packed K part."""
        return vectors * (-(-self.key_bits * width // 8) + (0 if self.key_bits == 8 else 2))

    def value_bytes(self, width: int, vectors: int) -> int:
        """Bytes of the packed V part, with the byte that makes the K+V slot even."""
        value = -(-self.value_bits * width // 8) + 4
        pad = (self.key_bytes(width, 1) + value) % 2
        return vectors * (value + pad)

    def row_bytes(self, width: int, vectors: int = 1) -> int:
        """Refused: the slot holds a K and a V together."""
        raise UsageError(f"format {self.name} packs K with V and cannot hold a row of {vectors} x {width}", "use fp8 or bf16")

    @property
    def formula(self) -> str:
        """The slot in words."""
        key = "1 B per K element" if self.key_bits == 8 else f"{self.key_bits} bits per K element + 2 B"
        return f"{key}, {self.value_bits} bits per V element + 4 B, even in all"


def _table(*formats: Format) -> dict[str, Format]:
    return {item.name: item for item in formats}


#: Every format that kvcalc knows, by name.
FORMATS: dict[str, Format] = _table(
    Format("fp32", 1, 4, about="single precision; recurrent states by default"),
    Format("bf16", 1, 2, about="bfloat16, the default of every engine for bf16 models"),
    Format("fp16", 1, 2, about="half precision"),
    Format("fp8", 1, 1, about="e4m3 or e5m2 with one scale per tensor, kept with the weights"),
    Format("mxfp8", 32, 33, about="fp8 with one E8M0 scale byte per 32 elements"),
    Format("int8", 1, 1, 4, about="8-bit integers with one fp32 scale per token and head"),
    Format("int4", 2, 1, 4, about="4-bit integers with one fp32 scale per token and head, zero point folded in"),
    Format("int8_per_token_head", 1, 1, 4, about="vLLM: 8-bit integers, one fp32 scale per token and head inline"),
    Format("fp8_per_token_head", 1, 1, 4, about="vLLM: fp8, one fp32 scale per token and head inline"),
    Format("int4_per_token_head", 2, 1, 4, about="vLLM: 4-bit integers, one fp32 scale per token and head inline"),
    Format("nvfp4", 16, 9, about="4-bit floats with one fp8 scale per 16 elements"),
    Format("nvfp4_4over6", 16, 9, about="nvfp4 with the 4-over-6 scale choice, same bytes"),
    Format("fp4_mx_block16", 16, 9, about="SGLang: 4-bit floats with one scale byte per 16 elements"),
    Format("ultraquant_4bit", 32, 17, about="vLLM on ROCm: 4-bit with one scale byte per 32 elements"),
    Format("q8_0", 32, 34, about="ggml: 32 signed bytes and one fp16 scale"),
    Format("q5_1", 32, 24, about="ggml: 5-bit with scale and minimum"),
    Format("q5_0", 32, 22, about="ggml: 5-bit with scale"),
    Format("q4_1", 32, 20, about="ggml: 4-bit with scale and minimum"),
    Format("q4_0", 32, 18, about="ggml: 4-bit with scale"),
    Format("iq4_nl", 32, 18, about="ggml: 4-bit non-linear with scale"),
    Format("index_fp8", 128, 132, about="sparse-attention index keys: fp8 with one fp32 scale per 128 elements"),
    Format("index_fp4", 32, 17, about="sparse-attention index keys: 4-bit with one scale byte per 32 elements"),
    PackedLatent("fp8_ds_mla", 128, 132, about="MLA row for sparse kernels: fp8 latent, fp32 scale per 128, bf16 rope", rope_bytes=2),
    PackedLatent("nvfp4_ds_mla", 16, 9, about="MLA row for sparse kernels: nvfp4 latent, fp8 rope", rope_bytes=1),
    TurboQuant("turboquant_k8v4", 1, 1, about="vLLM TurboQuant: fp8 keys, 4-bit values", key_bits=8, value_bits=4),
    TurboQuant("turboquant_4bit_nc", 1, 1, about="vLLM TurboQuant: 4-bit keys and values", key_bits=4, value_bits=4),
    TurboQuant("turboquant_k3v4_nc", 1, 1, about="vLLM TurboQuant: 3-bit keys, 4-bit values", key_bits=3, value_bits=4),
    TurboQuant("turboquant_3bit_nc", 1, 1, about="vLLM TurboQuant: 3-bit keys and values", key_bits=3, value_bits=3),
)

#: Other spellings in use, among them PyTorch's dtype names and the engines' flags.
ALIASES: dict[str, str] = {
    "float32": "fp32",
    "f32": "fp32",
    "float": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "f16": "fp16",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "fp8_inc": "fp8",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
}

#: What the ggml world calls a type; the llama.cpp engine accepts exactly these.
GGML_TYPES = ("fp32", "fp16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")


def get_format(name: str, what: str = "--kv-dtype") -> Format:
    """The format of that name or alias. Raises UsageError naming the nearest ones."""
    key = name.strip().lower()
    found = FORMATS.get(ALIASES.get(key, key))
    if found is None:
        known = [*FORMATS, *ALIASES]
        raise UsageError(f"{what}: unknown format '{clean(name, 40)}'", nearest(key, known) or "known formats: " + ", ".join(FORMATS))
    return found


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class KvFormat(Value):
    """The formats of K and V; they differ only where the user writes `K/V`, such as `q8_0/q4_0`."""

    key: Format
    value: Format

    @property
    def name(self) -> str:
        """`bf16`, or `q8_0/q4_0` where K and V differ."""
        return self.key.name if self.key is self.value else f"{self.key.name}/{self.value.name}"


def one_format(text: str, engine: str) -> str:
    """`text` under an engine that stores K and V alike: `fp8/fp8` is `fp8`. Raises EngineRejectsError where they differ."""
    key, slash, value = (part.strip() for part in text.partition("/"))
    if slash and key.lower() != value.lower():
        raise EngineRejectsError(f"{engine} stores K and V in one format, and '{clean(text, 40)}' sets them apart", "give one format")
    return key


def get_kv_format(text: str, what: str = "--kv-dtype") -> KvFormat:
    """`bf16` or `q8_0/q4_0` → formats of K and V. `auto` must be resolved by the engine before. Raises UsageError."""
    key, slash, value = text.partition("/")
    first = get_format(key, what)
    pair = KvFormat(first, get_format(value, what) if slash else first)
    if pair.key is not pair.value and any(isinstance(item, TurboQuant | PackedLatent) for item in (pair.key, pair.value)):
        raise UsageError(f"{what}: {pair.name} mixes a format that packs K with V", "use such a format for both")
    return pair
