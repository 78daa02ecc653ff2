"""TensorRT-LLM's paged KV cache with its two managers, as its source describes them; nothing here was run against the engine.

families.py   which manager a family's class prefers     releases.py   which managers a release has
layers.py     what a layer stores for a token            states.py     what a request holds whatever its length
windows.py    the windows of layers                      v4.py         DeepSeek-V4's compressed rows and windows
question.py   a question, and the blocks that it holds   first.py      what the first manager makes of a memory
pools.py      pools, grains and their division           second.py     what the second manager makes of a memory
formats.py    the cache's type                           engine.py     lines of the plan, capacity, what fit asks
"""
