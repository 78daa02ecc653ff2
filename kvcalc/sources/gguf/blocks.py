"""llama.cpp architecture → what each of its blocks keeps: the table of readers.

    Metadata ──READERS[architecture], else every block is full attention──▶ one tuple of states a block

Which keys matter is the architecture's, never the file's: converters also write keys that an architecture does not read.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kvcalc.sources.gguf.attention import (
    GEMMA3N_OWNERS,
    WINDOWS,
    borrowing,
    cacheless,
    dflash,
    gemma4,
    looped,
    plain,
    routed,
    shared_from,
    windowed,
)
from kvcalc.sources.gguf.latent import dots3, dsa, dsv4, expanded_mla, latent, mla, msa
from kvcalc.sources.gguf.recurrent import (
    by_heads,
    by_interval,
    delta_net,
    glm5_next,
    kda,
    lfm2,
    lightning,
    mamba1,
    mamba2,
    nemotron,
    parallel,
    pure,
    qwen4,
    rwkv,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcalc.sources.gguf.attention import States
    from kvcalc.sources.gguf.metadata import Metadata

    Reader = Callable[[Metadata], list[States]]


def read_blocks(meta: Metadata) -> list[States]:
    """The states of every block, in order. Raises InvalidConfigError."""
    return READERS.get(meta.architecture, plain)(meta)


#: Encoders, diffusion models and classifiers (llama-model.cpp `create_memory`).
CACHELESS = (
    "bert",
    "clef",
    "dream",
    "eurobert",
    "gemma-embedding",
    "jina-bert-v2",
    "jina-bert-v3",
    "llada",
    "llada-moe",
    "modern-bert",
    "neo-bert",
    "nomic-bert",
    "nomic-bert-moe",
    "rnd1",
    "wavtokenizer-dec",
)

_DELTA = partial(by_interval, mixer=delta_net)
_KDA = partial(by_heads, mixer=kda, attend=latent)

READERS: dict[str, Reader] = {
    **dict.fromkeys(WINDOWS, windowed),
    "gemma3n": partial(shared_from, owners=GEMMA3N_OWNERS),
    "gemma4": gemma4,
    "gemma4-assistant": borrowing,
    "dflash": dflash,
    "nanbeige": looped,
    "graniteswitch": routed,
    **dict.fromkeys(("deepseek2", "mistral4"), mla),
    **dict.fromkeys(("minicpm3", "plm"), expanded_mla),
    **dict.fromkeys(("deepseek32", "glm-dsa", "hy_v4"), dsa),
    "dots3note": dots3,
    "deepseek4": dsv4,
    "minimax-m3": msa,
    "mamba": partial(pure, mixer=mamba1),
    "mamba2": partial(pure, mixer=mamba2),
    **dict.fromkeys(("rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"), partial(pure, mixer=rwkv)),
    "falcon-h1": parallel,
    "jamba": partial(by_heads, mixer=mamba1),
    **dict.fromkeys(("granitehybrid", "plamo2"), partial(by_heads, mixer=mamba2)),
    **dict.fromkeys(("lfm2", "lfm2moe"), lfm2),
    **dict.fromkeys(("nemotron_h", "nemotron_h_moe"), nemotron),
    **dict.fromkeys(("qwen3next", "qwen35", "qwen35moe"), _DELTA),
    "qwen4exp": qwen4,
    "minimax-01": partial(by_interval, mixer=lightning, interval=8),
    **dict.fromkeys(("kimi-linear", "kimi-k3", "bailingmoe3"), _KDA),
    "glm5-next": glm5_next,
    **dict.fromkeys(CACHELESS, cacheless),
}
