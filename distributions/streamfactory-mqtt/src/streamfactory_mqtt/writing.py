"""Writing: a message for each row, and a commit that waits for the broker."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import pyarrow as pa
from streamfactory import spi

from streamfactory_mqtt.client import Client
from streamfactory_mqtt.session import publish_properties

_WAITING: Final = 1_000
"""Messages that are sent and not acknowledged, at most."""


class MqttWriter(spi.StreamWriter):
    """Publishes the rows of one attempt, each as it comes."""

    def __init__(self, config: spi.StreamConfig, client: Client) -> None:
        self._topic: str = config["publish.topic"]
        self._qos = int(config["qos"])
        self._retain: bool = config["publish.retained"]
        self._client = client
        self._sent: list[tuple[str, Any]] = []
        self._woken = False

    def write(self, outgoing: spi.Outgoing) -> None:
        values = outgoing.rows.column("value").to_pylist()
        nothing = [None] * len(values)
        keys = nothing if outgoing.key is None else outgoing.key.to_pylist()
        headers = nothing if outgoing.headers is None else outgoing.headers.to_pylist()
        for row, value in enumerate(values):
            topic = self._topic_of(row, outgoing.partition, keys[row])
            try:
                properties = publish_properties(headers[row] or ())
            except UnicodeDecodeError as error:
                msg = f"row {row}: a header is not text, which MQTT requires"
                raise spi.SchemaMismatch(msg) from error
            sent = self._client.paho.publish(
                topic, value or b"", self._qos, self._retain, properties
            )
            self._sent.append((topic, sent))
            if len(self._sent) >= _WAITING:
                self._confirm()

    def commit(self) -> Any:
        self._confirm()
        return {}

    def wake(self) -> None:
        self._woken = True

    def _topic_of(self, row: int, partition: int, key: bytes | str | None) -> str:
        """The topic of a row.

        Raises:
            spi.SchemaMismatch: permanent; its key is no part of a topic.
        """
        topic = self._topic.replace("{partition}", str(partition))
        if "{key}" not in topic:
            return topic
        text = key.decode(errors="replace") if isinstance(key, bytes) else key
        if not text or any(c in "+#\0\ufffd" for c in text) or len(text) > 1000:
            msg = f"row {row}: the key {text!r} is no part of a topic"
            raise spi.SchemaMismatch(msg, remedy="take {key} out of publish.topic")
        return topic.replace("{key}", text)

    def _confirm(self) -> None:
        """Wait until the broker has accepted all that was sent.

        Raises:
            StreamError: See `Client.confirm`.
        """
        sent, self._sent = self._sent, []
        for topic, one in sent:
            self._client.confirm(one, topic, woken=lambda: self._woken)


class MqttCommitter(spi.StreamCommitter):
    """Has nothing to decide: the broker distributes each message as it arrives."""

    def commit(
        self,
        epoch: int,
        messages: Sequence[spi.CommitMessage],
        source_position: spi.Position | None = None,
    ) -> spi.LastCommit | None:
        return None


class MqttProducerFactory(spi.ProducerFactory):
    """Makes the two above; holds the connection that they share."""

    CLAIMS: ClassVar = spi.Claims(durable=True)
    CARRIES: ClassVar = frozenset({"_key", "_headers"})

    def __init__(self, config: spi.StreamConfig) -> None:
        super().__init__(config)
        if "{key}" not in config.get("publish.topic", ""):
            # A class variable that this configuration narrows.
            self.CARRIES = frozenset({"_headers"})  # type: ignore[misc]
        self._lock = threading.Lock()
        self._client: Client | None = None

    def create_writer(self, context: spi.WriteContext) -> MqttWriter:
        with self._lock:
            if self._client is None:
                client = Client(self.config)
                client.open(clean=True)
                self._client = client
        return MqttWriter(self.config, self._client)

    def create_committer(self, writer_id: str | None) -> MqttCommitter:
        return MqttCommitter()

    def fetch_partition_count(self, topic: str) -> int:
        return int(self.config["partitions"])

    def fetch_schema(self, topic: str) -> pa.Schema:
        return spi.envelope_schema()

    def claims(self) -> spi.Claims:
        return spi.Claims(durable=self.config["qos"] != "0")

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
