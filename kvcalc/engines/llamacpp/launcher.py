"""What starts llama.cpp."""

from __future__ import annotations

from kvcalc.engines.base.launcher import Launcher

LAUNCHER = Launcher(
    programs={("llama-server",): "server", ("llama-cli",): "cli"},
    images={"ggml-org/llama.cpp": "server", "ggerganov/llama.cpp": "server"},
    tags={"light": "cli"},
)
