"""What starts ExLlamaV3: TabbyAPI by its own scripts and image, and text-generation-webui's server."""

from __future__ import annotations

from kvcalc.engines.base.launcher import Launcher

_PYTHONS = ("python", "python3")

LAUNCHER = Launcher(
    programs={
        **{(python, script): "tabby" for script in ("main.py", "start.py") for python in _PYTHONS},
        **{(python, "server.py"): "webui" for python in _PYTHONS},
    },
    images={"theroyallab/tabbyapi": "tabby"},
    variables=("TABBY_",),
)
