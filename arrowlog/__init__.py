"""The Arrow log: topics of partitions, appended to by atomic, idempotent epochs.

`Log` is the interface; `MemoryLog` keeps it in this process, `DiskLog` in files or an
object store. What backends with a memory stand on, and what such a backend is made of:
`LogConsumerFactory`, `LogProducerFactory`, `LogTopicAdmin`, `LOG_OPTIONS`.
"""

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
from streamfactory.arrowlog.reading import LogConsumer, LogConsumerFactory, LogMetadata
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
