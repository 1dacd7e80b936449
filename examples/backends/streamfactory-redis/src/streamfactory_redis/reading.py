"""Reading: entries by offset, in snapshots that scripts take."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from streamfactory import spi

from streamfactory_redis import layout, scripts
from streamfactory_redis.connection import Connection
from streamfactory_redis.layout import topic_problem

_MOST_ROWS: Final = 16_384
"""Of one answer: the server does nothing else meanwhile."""
_MOST_BYTES: Final = 32 * 1024**2
_FIRST_TIME: Final = 10**11
"""An id of fewer milliseconds, before 1973, is no time."""
_APPENDED, _UNKNOWN = 1, -1


@dataclass(frozen=True)
class Place:
    """Where a partition's entries are."""

    key: str
    managed: bool
    """Whether it belongs to a topic that was created as one."""


def find(connection: Connection, partition: spi.Partition) -> Place:
    """Find the stream of a partition.

    Raises:
        spi.TopicNotFound: permanent.
    """
    topic = partition.topic
    count: Any = connection.client.hget(layout.topic_key(topic), "partitions")
    if count is not None:
        if partition.id < int(count):
            return Place(layout.stream_key(topic, partition.id), managed=True)
    elif partition.id == 0 and connection.client.type(topic) == b"stream":
        return Place(topic, managed=False)
    msg = f"Redis has no stream for {partition}"
    raise spi.TopicNotFound(msg)


def parse_bounds(answer: Sequence[Any]) -> tuple[int, int]:
    """Earliest and latest of what the function ``bounds`` of a script returns."""
    last, first, removed = answer
    latest = layout.offset_of(last) + 1
    if first is None:
        return latest, latest
    # Where nothing was ever removed, a reader before the first entry has lost nothing.
    return (layout.offset_of(first) if removed else 1), latest


class RedisConsumer(spi.PartitionLevelConsumer):
    """Reads one partition."""

    def __init__(self, connection: Connection, partition: spi.Partition) -> None:
        self._connection = connection
        self._partition = partition
        self._place: Place | None = None
        self._incarnation: str | None = None

    def fetch_messages(
        self, start: int, end: int | None, limits: spi.FetchLimits
    ) -> spi.Fetched:
        if self._place is None:
            self._place = find(self._connection, self._partition)
        place = self._place
        deadline = time.monotonic() + limits.timeout
        fetched = self._read(place, start, limits)
        if fetched.rows is None and fetched.state is spi.BatchState.CAUGHT_UP:
            left = int((deadline - time.monotonic()) * 1000)
            before = layout.entry_id(max(0, start - 1))
            if left > 0 and self._connection.client.xread(
                {place.key: before}, count=1, block=left
            ):
                fetched = self._read(place, start, limits)
        return fetched

    def _read(self, place: Place, start: int, limits: spi.FetchLimits) -> spi.Fetched:
        """What the stream has now, at or after an offset."""
        incarnation, bounds, entries = self._connection.run(
            scripts.READ,
            [layout.topic_key(self._partition.topic), place.key],
            layout.entry_id(start),
            min(limits.max_rows, _MOST_ROWS),
            min(limits.max_bytes, _MOST_BYTES),
        )
        earliest, latest = parse_bounds(bounds)
        if place.managed:
            if incarnation is None:
                msg = f"topic {self._partition.topic!r} was deleted"
                raise spi.TopicNotFound(msg)
            now = incarnation.decode()
            known, self._incarnation = self._incarnation or now, now
            if known != now:
                return spi.Fetched(None, earliest, incarnation=now)
        if entries:
            rows = envelopes(self._partition, entries)
            next_offset = layout.offset_of(entries[-1][0]) + 1
        else:
            # The snapshot has no entry from here on: what lies before latest is a gap.
            rows, next_offset = None, max(start, latest)
        return spi.Fetched(
            rows,
            next_offset,
            state=spi.BatchState.CAUGHT_UP if rows is None else None,
            latest=latest,
            held_from=earliest,
            incarnation=self._incarnation,
        )


class RedisMetadata(spi.MetadataProvider):
    """Asks for the bounds of all partitions in one script."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def fetch_partitions(
        self, topics: Sequence[str], known: Collection[spi.Partition]
    ) -> Sequence[spi.PartitionInfo]:
        return [info for topic in topics for info in self._infos(topic)]

    def fetch_offsets_at(
        self, timestamp_ms: int, partitions: Collection[spi.Partition]
    ) -> Mapping[spi.Partition, int | None]:
        wanted = timestamp_ms * 1000
        infos = self.fetch_bounds(partitions)
        return {info.partition: self._offset_at(info, wanted) for info in infos}

    def fetch_schema(self, topic: str) -> pa.Schema:
        return spi.envelope_schema()

    def fetch_topics(self) -> Sequence[str]:
        client = self._connection.client
        keys = client.scan_iter(match="{*}:topic", _type="hash")
        topics = {key.decode()[1:].rpartition("}:topic")[0] for key in keys}
        # A key with braces is a partition of a topic, and no name of one.
        streams = {
            key.decode(errors="replace") for key in client.scan_iter(_type="stream")
        }
        return sorted(topics | {key for key in streams if not topic_problem(key)})

    def _offset_at(self, info: spi.PartitionInfo, wanted: int) -> int | None:
        """The offset of the first entry that was stored then or later."""
        key = find(self._connection, info.partition).key
        low, high = info.earliest, info.latest or 0
        found = None
        while low < high:
            middle = (low + high) // 2
            # The client makes a dict of the fields, of which "stored" has one value.
            entries: Any = self._connection.client.xrange(
                key, min=layout.entry_id(middle), count=1
            )
            if entries and _stored(*entries[0]) < wanted:
                low = layout.offset_of(entries[0][0]) + 1
            else:
                found = layout.offset_of(entries[0][0]) if entries else found
                high = middle
        return found

    def _infos(self, topic: str) -> list[spi.PartitionInfo]:
        incarnation, bounds = self._connection.run(
            scripts.PARTITIONS,
            [layout.topic_key(topic)],
            layout.stream_key(topic, ""),
        )
        if incarnation is None:
            partition = spi.Partition(topic, 0)
            place = find(self._connection, partition)
            keys = [layout.topic_key(topic), place.key]
            _, only, _ = self._connection.run(scripts.READ, keys, "+", 1, 1)
            return [spi.PartitionInfo(partition, *parse_bounds(only))]
        return [
            spi.PartitionInfo(
                spi.Partition(topic, number),
                *parse_bounds(found),
                incarnation=incarnation.decode(),
            )
            for number, found in enumerate(bounds)
        ]


class RedisConsumerFactory(spi.ConsumerFactory):
    """Makes the two above; holds the connections that they share."""

    CLAIMS = spi.Claims(replayable=True, durable=True, shared=True, redelivers=True)

    def __init__(self, config: spi.StreamConfig) -> None:
        super().__init__(config)
        self._connection = Connection(config)

    def create_partition_level_consumer(
        self,
        client_id: str,
        partition: spi.Partition,
        fields_to_read: Sequence[str] | None = None,
    ) -> RedisConsumer:
        return RedisConsumer(self._connection, partition)

    def create_metadata_provider(self, client_id: str) -> RedisMetadata:
        return RedisMetadata(self._connection)

    def acknowledge(self, position: spi.Position) -> None:
        """Delete what is stored elsewhere, with ``delete.acknowledged``."""
        if not self.config["delete.acknowledged"]:
            return
        for partition, offset in position.items():
            place = find(self._connection, partition)
            self._connection.run(
                scripts.TRIM,
                [layout.topic_key(partition.topic), place.key],
                position.incarnations.get(partition, ""),
                layout.entry_id(offset),
            )

    def claims(self) -> spi.Claims:
        if self.config["delete.acknowledged"]:
            return self.CLAIMS
        return spi.Claims(replayable=True, durable=True, shared=True)

    def close(self) -> None:
        self._connection.close()


def envelopes(partition: spi.Partition, entries: Sequence[Any]) -> pa.RecordBatch:
    """Entries as rows of `envelope_schema`.

    The fields ``value`` and ``key`` are the message; other fields are its headers. An
    entry without ``value`` is a tombstone.
    """
    columns: dict[str, list[Any]] = {name: [] for name in spi.envelope_schema().names}
    for entry, fields in entries:
        pairs = list(zip(fields[::2], fields[1::2], strict=True))
        first = dict(reversed(pairs))
        columns["key"].append(first.get(b"key"))
        columns["value"].append(first.get(b"value"))
        columns["topic"].append(partition.topic)
        columns["partition"].append(partition.id)
        columns["offset"].append(layout.offset_of(entry))
        timestamp = _timestamp(entry, first.get(b"stored"))
        columns["timestamp"].append(timestamp)
        kind = _UNKNOWN if timestamp is None else _APPENDED
        columns["timestampType"].append(kind)
        headers = [
            (name.decode(errors="replace"), value)
            for name, value in pairs
            if name not in (b"key", b"value", b"stored")
        ]
        columns["headers"].append(headers or None)
    arrays = [pa.array(columns[f.name], f.type) for f in spi.envelope_schema()]
    return pa.RecordBatch.from_arrays(arrays, schema=spi.envelope_schema())


def _timestamp(entry: bytes, stored: bytes | None) -> int | None:
    """When an entry was stored, in microseconds; None where its id is no time."""
    if stored is not None and stored.isdigit():
        return int(stored)
    milliseconds = int(entry.partition(b"-")[0])
    return milliseconds * 1000 if milliseconds >= _FIRST_TIME else None


def _stored(entry: bytes, fields: Mapping[bytes, bytes]) -> int:
    """A time by which entries are ordered, in microseconds."""
    found = _timestamp(entry, fields.get(b"stored"))
    return int(entry.partition(b"-")[0]) * 1000 if found is None else found
