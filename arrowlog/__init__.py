"""The Arrow log: topics of partitions, appended to by atomic, idempotent epochs.

`Log` is the interface; `MemoryLog` stores rows in memory, `DiskLog` in files or an
object store. Backends that store messages are built on it, with `LogConsumerFactory`,
`LogProducerFactory`, `LogTopicAdmin` and `LOG_OPTIONS`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from streamfactory.arrowlog.administration import LogTopicAdmin
    from streamfactory.arrowlog.log import Log, LogStore, WritableLog, WritableLogStore
    from streamfactory.arrowlog.memory import MemoryLog
    from streamfactory.arrowlog.memory_store import MemoryLogStore
    from streamfactory.arrowlog.messages import message_schema
    from streamfactory.arrowlog.options import LOG_OPTIONS
    from streamfactory.arrowlog.reading import (
        LogConsumer,
        LogConsumerFactory,
        LogMetadata,
    )
    from streamfactory.arrowlog.stages import LogStage, SoundStage
    from streamfactory.arrowlog.values import (
        Committed,
        Epoch,
        LogSlice,
        PartitionBounds,
        Retention,
        Staged,
    )
    from streamfactory.arrowlog.writing import LogProducerFactory

__all__ = [
    "LOG_OPTIONS",
    "Committed",
    "Epoch",
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
    "PartitionBounds",
    "Retention",
    "SoundStage",
    "Staged",
    "WritableLog",
    "WritableLogStore",
    "message_schema",
]

_WHERE: Final = {
    "LOG_OPTIONS": "streamfactory.arrowlog.options",
    "Committed": "streamfactory.arrowlog.values",
    "Epoch": "streamfactory.arrowlog.values",
    "PartitionBounds": "streamfactory.arrowlog.values",
    "Log": "streamfactory.arrowlog.log",
    "LogConsumer": "streamfactory.arrowlog.reading",
    "LogConsumerFactory": "streamfactory.arrowlog.reading",
    "LogMetadata": "streamfactory.arrowlog.reading",
    "LogProducerFactory": "streamfactory.arrowlog.writing",
    "LogSlice": "streamfactory.arrowlog.values",
    "LogStage": "streamfactory.arrowlog.stages",
    "SoundStage": "streamfactory.arrowlog.stages",
    "LogStore": "streamfactory.arrowlog.log",
    "LogTopicAdmin": "streamfactory.arrowlog.administration",
    "MemoryLog": "streamfactory.arrowlog.memory",
    "MemoryLogStore": "streamfactory.arrowlog.memory_store",
    "WritableLog": "streamfactory.arrowlog.log",
    "WritableLogStore": "streamfactory.arrowlog.log",
    "Retention": "streamfactory.arrowlog.values",
    "Staged": "streamfactory.arrowlog.values",
    "message_schema": "streamfactory.arrowlog.messages",
}


def __getattr__(name: str) -> Any:
    # Lazy: declarations of options are here too, and must not load Arrow.
    if name not in _WHERE:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(_WHERE[name]), name)
