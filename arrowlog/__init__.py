"""The Arrow log: topics of partitions, appended to by atomic, idempotent epochs.

`Log` is the interface; `MemoryLog` keeps it in this process. What backends with a
memory stand on.
"""

from streamfactory.arrowlog.log import (
    LaneBounds,
    Log,
    LogSlice,
    LogStage,
    LogStore,
    Staged,
)
from streamfactory.arrowlog.memory import MemoryLog, MemoryLogStore

__all__ = [
    "LaneBounds",
    "Log",
    "LogSlice",
    "LogStage",
    "LogStore",
    "MemoryLog",
    "MemoryLogStore",
    "Staged",
]
