"""vLLM 0.33: memory in blocks, drawn from one pool by groups of layers.

settings.py    vLLM's own flags, and what a card resolves them to
families.py    one row a model_type; classes.py the same of Hugging Face classes
support.py     what this release cannot serve
dtypes.py      the type of the model and of its cache
speculation.py draft layers and draft tokens
kept.py        which states need a cache
start.py       settings and config resolved against each other, and every cache that the layers need
attention.py   what is stored of a layer, and what it asks of a kernel
backends.py    attention kernels: what each accepts, which block sizes it can read
selection.py   which one runs a layer, and the blocks that they share
recurrent.py   states of recurrent layers
layers.py      the specs of ordinary layers
compressed.py  DeepSeek-V4's layers
family_caches/ families whose layers keep something else, or more, than that
specs.py       bytes of one block of one layer on one GPU
blocksize.py   tokens per block
groups.py      layers that share a block table, and the bytes that one block id costs
model.py       from a start to its pool, in the order in which vLLM applies all of this
pool.py        blocks per request, number of blocks, what fits
lines.py       the same as lines of an estimate
notes.py       what a reader has to know to follow the figures
engine.py      the engine
"""
