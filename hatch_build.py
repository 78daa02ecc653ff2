"""What happens when the package is built or installed, also in editable mode: the catalogue is checked and compiled."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CatalogueHook(BuildHookInterface[Any]):
    """Writes model_configs/catalogue.compiled, which the wheel then carries beside the YAML files."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002  Hatchling's signature
        """Read every YAML file as kvcalc itself does; a file that is wrong stops the build."""
        sys.path.insert(0, self.root)
        try:
            from kvcalc.sources import catalogue

            catalogue.compile_folder(Path(self.root) / "model_configs")
        finally:
            sys.path.remove(self.root)
