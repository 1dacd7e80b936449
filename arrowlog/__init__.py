"""The Arrow log: topics of partitions, appended to by atomic, idempotent epochs.

`Log` is the interface; `MemoryLog` keeps it in this process, `DiskLog` in files or an
object store. What backends with a memory stand on, and what such a backend is made of:
`LogConsumerFactory`, `LogProducerFactory`, `LogTopicAdmin`, `LOG_OPTIONS`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from streamfactory.arrowlog.administration import LogTopicAdmin
    from streamfactory.arrowlog.log import (
        LaneBounds,
        Log,
        LogSlice,
        LogStage,
        LogStore,
        Retention,
        Staged,
    )
    from streamfactory.arrowlog.memory import MemoryLog, MemoryLogStore
    from streamfactory.arrowlog.messages import message_schema
    from streamfactory.arrowlog.options import LOG_OPTIONS
    from streamfactory.arrowlog.reading import (
        LogConsumer,
        LogConsumerFactory,
        LogMetadata,
    )
    from streamfactory.arrowlog.writing import LogProducerFactory

__all__ = [
    "LOG_OPTIONS",
    "LaneBounds",
    "Log",
    "LogConsumer",
    "LogConsumerFactory",
    "LogMetadata",
    "LogProducerFactory",
    "LogSlice",
    "LogStage",
    "LogStore",
    "LogTopicAdmin",
    "MemoryLog",
    "MemoryLogStore",
    "Retention",
    "Staged",
    "message_schema",
]

_WHERE: Final = {
    "LOG_OPTIONS": "streamfactory.arrowlog.options",
    "LaneBounds": "streamfactory.arrowlog.log",
    "Log": "streamfactory.arrowlog.log",
    "LogConsumer": "streamfactory.arrowlog.reading",
    "LogConsumerFactory": "streamfactory.arrowlog.reading",
    "LogMetadata": "streamfactory.arrowlog.reading",
    "LogProducerFactory": "streamfactory.arrowlog.writing",
    "LogSlice": "streamfactory.arrowlog.log",
    "LogStage": "streamfactory.arrowlog.log",
    "LogStore": "streamfactory.arrowlog.log",
    "LogTopicAdmin": "streamfactory.arrowlog.administration",
    "MemoryLog": "streamfactory.arrowlog.memory",
    "MemoryLogStore": "streamfactory.arrowlog.memory",
    "Retention": "streamfactory.arrowlog.log",
    "Staged": "streamfactory.arrowlog.log",
    "message_schema": "streamfactory.arrowlog.messages",
}


def __getattr__(name: str) -> Any:
    # Lazily: the options of a log are declared here too, and need no Arrow.
    if name not in _WHERE:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(_WHERE[name]), name)
