"""What starts LMDeploy: `lmdeploy serve api_server`, on a machine or behind its image, `openmmlab/lmdeploy`."""

from __future__ import annotations

from kvcalc.engines.base.launcher import Launcher

LAUNCHER = Launcher(programs={("lmdeploy", "serve"): "serve"})
