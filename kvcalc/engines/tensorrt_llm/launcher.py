"""What starts TensorRT-LLM."""

from __future__ import annotations

from kvcalc.engines.base.launcher import Launcher

LAUNCHER = Launcher(
    programs={("trtllm-serve",): "serve"},
    variables=("TRTLLM_", "TLLM_"),
)
