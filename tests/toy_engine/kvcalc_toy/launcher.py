"""What starts Toy."""

from __future__ import annotations

from kvcalc.engines.base.launcher import Launcher

LAUNCHER = Launcher(programs={("toy-serve",): "serve"}, images={"toy/server": "serve"}, variables=("TOY_",))
