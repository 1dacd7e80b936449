"""How topics in shared memory are created, written and read in this process."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from streamfactory.spi import StreamConfig

SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - it is shared on purpose


@dataclass(frozen=True, slots=True)
class Settings:
    """Values of the options, hashable."""

    capacity: int = 64 << 20
    """Bytes of each ring of a topic that is created."""
    blocks: bool = False
    """Whether writers of a topic that is created wait for its readers."""
    patience: float = 300.0
    """Seconds that a writer waits for readers."""
    copies: bool = False
    """Whether readers copy rows out of the ring."""
    checks: bool = True
    """Whether values are validated when they are read."""

    @classmethod
    def of(cls, config: StreamConfig) -> Settings:
        """Those of a configuration."""
        return cls(
            config["capacity"],
            config["when.full"] == "block",
            config["stall.timeout.millis"] / 1000,
            config["read.mode"] == "copy",
            config["check.values"],
        )


def root_of(config: StreamConfig) -> Path:
    """The folder of the topics of a configuration."""
    given = config.get("path")
    if given is not None:
        return Path(given)
    return SHARED_MEMORY / f"streamfactory-{os.geteuid()}"
