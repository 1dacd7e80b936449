"""What the writers and committers of one producer factory share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from streamfactory.backends.kafka.clients import Watch, brokers, client_settings
from streamfactory.backends.kafka.markers import Markers
from streamfactory.backends.kafka.native_library import library_for
from streamfactory.backends.kafka.options import WRITING
from streamfactory.backends.kafka.producing import Deadline
from streamfactory.backends.kafka.row_checks import RowChecks
from streamfactory.backends.kafka.staging import StagingArea
from streamfactory.backends.kafka.writing_topics import WrittenTopics

if TYPE_CHECKING:
    from streamfactory.backends.kafka.native_library import Library
    from streamfactory.spi import StreamConfig

_CLIENT: Final = "streamfactory-writer"
"""Client id in the brokers' logs."""
_BATCH: Final = 1_000_000
"""librdkafka's default of batch.size, in bytes."""


class WritingResources:
    """The topics, markers, staging area and client settings of a configuration.

    Thread-safe. Opens connections on first use.
    """

    def __init__(self, config: StreamConfig) -> None:
        self.config = config
        self.patience: float = config["connection.timeout.millis"] / 1000
        self.watch = Watch()
        self.topics = WrittenTopics(
            lambda: self.client("admin"), self.watch, brokers(config)
        )
        self.markers = Markers(
            self.topics,
            lambda: self.client("consumer"),
            config["epochs.topic"],
            config["writer.memory.millis"],
        )
        self.staging = StagingArea(config)

    def close(self) -> None:
        """Remove staged files and close connections."""
        self.staging.close()
        self.topics.close()

    def client(self, kind: str) -> dict[str, Any]:
        """The settings of a client: ``consumer``, ``producer`` or ``admin``."""
        return client_settings(self.config, kind, _CLIENT, self.watch)

    def producer(self) -> dict[str, Any]:
        """The settings of a producer, whose batches must fit the topic."""
        limit = self._limit(self.config.topic)
        fits = _BATCH if limit is None else min(limit, _BATCH)
        return {"batch.size": fits, **self.client("producer")}

    def library(self) -> Library | None:
        """The compiled part; None if rows are sent by the Python client.

        Raises:
            ConfigError: config; the option requires it, and it cannot be used.
        """
        return library_for(self.config, WRITING)

    def row_checks(self, topic: str) -> RowChecks:
        """Checks of rows for a topic."""
        given = self.config.client_properties("producer")
        codec = given.get("compression.type", given.get("compression.codec", "none"))
        settings = self.topics.settings(topic, Deadline(self.patience))
        return RowChecks(topic, settings, lengths=codec == "none")

    def _limit(self, topic: str) -> int | None:
        found = self.topics.settings(topic, Deadline(self.patience))
        limit = found.get("max.message.bytes")
        return None if limit is None else int(limit)
