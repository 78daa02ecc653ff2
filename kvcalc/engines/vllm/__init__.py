"""vLLM 0.33: memory in blocks, drawn from one pool by groups of layers.

settings.py    vLLM's own flags, and what a start of the engine resolves them to
support.py     what this release no longer has
dtypes.py      the type of the model and of its cache
speculation.py draft layers and draft tokens
backends.py    attention kernels: which one runs a layer, which block sizes it can read
recurrent.py   states of recurrent layers
compressed.py  DeepSeek-V4's layers
specs.py       bytes of one block of one layer on one GPU
blocksize.py   tokens per block
groups.py      layers that share a block table, and the bytes that one block id costs
pool.py        blocks per request, number of blocks, what fits
model.py       all of the above in the order in which vLLM applies it
lines.py       the same as lines of an estimate
engine.py      the engine
"""

from __future__ import annotations

from kvcalc.engines.vllm.engine import Vllm

__all__ = ["Vllm"]
