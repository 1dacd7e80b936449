"""Build hook: compiles the core into the wheel."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).parent))

from compiling import CORE, compile_core, wheel_tag


class CompileHook(BuildHookInterface[Any]):
    """Compiles next to the source, where the wheel takes it from."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """See hatchling."""
        package = Path(self.root, "streamfactory_native")
        build_data["pure_python"] = False
        build_data["tag"] = wheel_tag(compile_core(package))

    def finalize(
        self,
        version: str,  # noqa: ARG002
        build_data: dict[str, Any],  # noqa: ARG002
        artifact_path: str,  # noqa: ARG002
    ) -> None:
        """See hatchling. The sources stay without a compiled file."""
        Path(self.root, "streamfactory_native", CORE).unlink()
