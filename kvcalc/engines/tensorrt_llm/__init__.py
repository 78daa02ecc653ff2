"""The `tensorrt-llm` engine: TensorRT-LLM's paged KV cache, as its source describes it; nothing here was run against the engine.

layers.py    what a layer stores for a token on one rank: the growing rows         states.py   what a request holds whatever its length
windows.py   attention windows, and the pools that they make                       v4.py       DeepSeek-V4's compressed rows and windows
formats.py   the cache's type                                                      engine.py   blocks, lines, capacity
"""
