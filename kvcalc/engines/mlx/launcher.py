"""What starts MLX-LM: each command by its own name, behind `mlx_lm`, or as a module of Python."""

from __future__ import annotations

from kvcalc.engines.base.launcher import Launcher

_COMMANDS = ("server", "generate", "chat")

LAUNCHER = Launcher(
    programs={
        **{(f"mlx_lm.{command}",): command for command in _COMMANDS},
        **{("mlx_lm", command): command for command in _COMMANDS},
    },
    variables=("MLX_", "MLXLM_"),
)
