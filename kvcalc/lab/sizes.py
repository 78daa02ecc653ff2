"""How large the lab's decoder is: small enough for a laptop, large enough that a wrong byte shows.

    parameters = vocabulary x dim + layers x (4 x dim² + 3 x dim x hidden)        hidden = 8/3 of dim; embedding and head are one

`gpt2-124m`: 50,257 x 768 + 12 x (4 x 768² + 3 x 768 x 2,048) = 123,532,032, as large as the smallest GPT-2, on which the well-known
comparison with and without a cache is made. Weights are random: no byte and no time depends on what they say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvcalc.core.errors import UsageError, nearest
from kvcalc.core.units import checked_int, clean

#: The rotary part of a latent is half a head and turns in pairs, so a head must divide by this.
HEAD_MULTIPLE = 4

#: The type of every weight and of everything that is kept: kvcalc's name for torch.float32.
DTYPE = "fp32"

DEVICES = ("cpu", "cuda", "mps")

#: What `--preset` sets; any flag given beside it wins.
PRESETS: dict[str, dict[str, int]] = {
    "gpt2-124m": {"layers": 12, "heads": 12, "dim": 768, "tokens": 200, "vocabulary": 50257, "threads": 0},
}

#: Most weights, and most scores of one layer when all is recomputed: 4 GB each. A typing slip must not ask for a terabyte.
MOST_NUMBERS = 10**9

#: The least and most of each number.
LIMITS: dict[str, tuple[int, int]] = {
    "layers": (1, 256),
    "heads": (1, 256),
    "dim": (HEAD_MULTIPLE, 16384),
    "tokens": (1, 32768),
    "prompt": (1, 32768),
    "vocabulary": (2, 2**20),
    "threads": (0, 1024),
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """The decoder and the work. Raises UsageError for sizes that do not go together.

    layers, heads, dim   of the decoder; a head is dim / heads wide
    tokens               decoded one by one, after a prompt of `prompt`
    threads              PyTorch's CPU threads; 0 leaves PyTorch's own choice
    """

    layers: int = 4
    heads: int = 4
    dim: int = 64
    tokens: int = 200
    prompt: int = 16
    vocabulary: int = 256
    device: str = "cpu"
    threads: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        for name, (least, most) in LIMITS.items():
            if checked_int(getattr(self, name), f"--{name}", least=least) > most:
                raise UsageError(f"--{name}: {getattr(self, name):,} is more than the lab runs", f"at most {most:,}")
        if self.dim % self.heads:
            raise UsageError(
                f"--heads: {self.heads} heads do not divide a dim of {self.dim}", "choose a dim that is a multiple of the heads"
            )
        if self.head_dim % HEAD_MULTIPLE:
            raise UsageError(
                f"--heads: heads of {self.head_dim} (dim {self.dim} over {self.heads} heads) are not a multiple of {HEAD_MULTIPLE}",
                f"choose a dim that is a multiple of {HEAD_MULTIPLE * self.heads}",
            )
        if self.device not in DEVICES:
            raise UsageError(f"--device: unknown device '{clean(self.device, 40)}'", nearest(self.device, DEVICES) or "cpu, cuda or mps")

        if self.parameters > MOST_NUMBERS:
            raise UsageError(
                f"--dim: the decoder would have {self.parameters:,} weights", f"at most {MOST_NUMBERS:,}: fewer --layers or a smaller --dim"
            )
        scores = self.heads * self.total**2
        if scores > MOST_NUMBERS:
            raise UsageError(
                f"--tokens: recomputing would make {scores:,} scores in a layer", f"at most {MOST_NUMBERS:,}: fewer --tokens or --heads"
            )

    @property
    def parameters(self) -> int:
        """Weights of the decoder with multi-head attention."""
        return self.vocabulary * self.dim + self.layers * (4 * self.dim**2 + 3 * self.dim * self.hidden)

    @property
    def head_dim(self) -> int:
        """The width of one head."""
        return self.dim // self.heads

    @property
    def hidden(self) -> int:
        """The width inside the feed-forward: 8/3 of dim, which with SwiGLU's three matrices is the classic 4 x dim."""
        return -(-8 * self.dim // 3 // 8) * 8

    @property
    def total(self) -> int:
        """Tokens in the cache when the last step is done."""
        return self.prompt + self.tokens

    @property
    def groups(self) -> int:
        """KV heads of grouped-query attention: a quarter of the heads, else the largest proper divisor."""
        if self.heads % 4 == 0:
            return self.heads // 4 if self.heads > 4 else 2  # one group of four would be MQA
        return max((divisor for divisor in range(1, self.heads) if self.heads % divisor == 0), default=1)


def make_sizes(preset: str | None = None, **given: Any) -> Sizes:
    """The sizes of a preset, or the default ones, under every flag that is not None. Raises UsageError."""
    if preset is not None and preset not in PRESETS:
        raise UsageError(f"--preset: unknown preset '{clean(preset, 40)}'", nearest(preset, PRESETS) or "presets: " + ", ".join(PRESETS))
    chosen: dict[str, Any] = dict(PRESETS[preset]) if preset else {}
    return Sizes(**chosen | {name: value for name, value in given.items() if value is not None})
