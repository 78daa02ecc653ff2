"""What starts vLLM."""

from __future__ import annotations

from kvcalc.engines.base.launcher import Launcher

LAUNCHER = Launcher(
    programs={
        ("vllm", "serve"): "serve",
        ("vllm.entrypoints.openai.api_server",): "api_server",
        ("vllm.entrypoints.api_server",): "api_server",
    },
    images={"vllm-openai": "api_server"},
    variables=("VLLM_",),
)
