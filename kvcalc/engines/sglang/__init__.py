"""SGLang 0.5.23: one flat pool of tokens, priced by the token and rounded to pages.

families.py     the families that it serves                      classes.py      what it keys on a model's class
dtypes.py       the cache's type
backends.py     attention backend and page size                  server.py       all flags as they end up
pools.py        tensors by token                                 recurrent.py    tensors by slot
sizing.py       memory → tokens, requests, slots                 deepseek_v4.py  a model with pools of its own
lines.py        pools → lines of a plan                          host.py         the second tier in host memory
engine.py       the engine
"""
