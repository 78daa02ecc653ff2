"""An engine's own launch command, read as a question to kvcalc.

    given.py ── words, or manifest.py ── launchers.py: which engine ──▶ the engine's own launch.py ──▶ ask.py: fit or estimate

Every flag is translated, is a setting of the engine, changes no byte, is refused, or is named in a warning. Nothing is executed,
and no file is read but the model's and one of further flags (config_file.py).
"""
