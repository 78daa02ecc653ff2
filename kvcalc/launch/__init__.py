"""An engine's own launch command, read as a question to kvcalc.

    words.py ── launchers.py ──▶ a table of flags an engine (flags.py) ──▶ reading.py ──▶ ask.py: fit or estimate
    manifest.py which engine     vllm.py sglang.py llamacpp.py tensorrt_llm.py ollama.py

Every flag is translated, is a setting of the engine, changes no byte, is refused, or is named in a warning. Nothing is executed,
and no file is read but the model's and one of further flags (config_file.py).
"""
