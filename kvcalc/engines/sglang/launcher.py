"""What starts SGLang."""

from __future__ import annotations

from kvcalc.engines.base.launcher import Launcher

LAUNCHER = Launcher(
    programs={("sglang", "serve"): "serve", ("sglang.launch_server",): "launch_server"},
    images={"lmsysorg/sglang": "launch_server"},
    variables=("SGLANG_", "SGL_"),
)
