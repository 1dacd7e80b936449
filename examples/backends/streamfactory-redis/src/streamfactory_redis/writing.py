"""Writing: tasks stage rows in lists, one script makes an epoch of them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import redis
from streamfactory import spi

from streamfactory_redis import layout, scripts
from streamfactory_redis.connection import Connection

_CHUNK: Final = 512
"""Rows that are staged by one command."""
_LONGEST: Final = 512 * 1024**2
"""Bytes that a server accepts in one argument, unless it is configured otherwise."""
_NOTHING: Final = b"-"


class RedisWriter(spi.StreamWriter):
    """Stages the rows of one attempt."""

    def __init__(self, connection: Connection, config: spi.StreamConfig) -> None:
        self._connection = connection
        self._topic = config.topic
        self._retention: int = config["staged.retention.millis"]
        self._attempt = uuid.uuid4().hex
        self._rows: dict[int, int] = {}
        self._longest: int | None = None

    def write(self, outgoing: spi.Outgoing) -> None:
        self._check_lengths(outgoing)
        key = layout.staged_key(self._topic, self._attempt, outgoing.partition)
        values = outgoing.rows.column("value")
        for start in range(0, len(values), _CHUNK):
            some = values.slice(start, _CHUNK)
            keys = None
            if outgoing.key is not None:
                keys = outgoing.key.slice(start, _CHUNK).cast(pa.binary())
            self._connection.client.rpush(key, *_texts(some, keys))
            self._rows[outgoing.partition] = self._rows.get(
                outgoing.partition, 0
            ) + len(some)
        self._connection.client.pexpire(key, self._retention)

    def _check_lengths(self, outgoing: spi.Outgoing) -> None:
        """Refuse what the server would end the connection for.

        Raises:
            spi.MessageTooLarge: permanent; a value or a key is too long.
        """
        if self._longest is None:
            self._longest = _fetch_longest(self._connection)
        before = sum(self._rows.values())
        for what, texts in (
            ("value", outgoing.rows.column("value")),
            ("key", outgoing.key),
        ):
            lengths = None if texts is None else pc.binary_length(texts)
            longest = None if lengths is None else pc.max(lengths).as_py()
            if longest is not None and longest > self._longest:
                row = before + pc.index(lengths, longest).as_py()
                msg = f"row {row} has a {what} of {longest} bytes, the server accepts "
                msg += str(self._longest)
                remedy = "raise proto-max-bulk-len of the server"
                raise spi.MessageTooLarge(msg, remedy=remedy)

    def commit(self) -> Any:
        rows = [[partition, count] for partition, count in self._rows.items()]
        return {"attempt": self._attempt, "rows": rows}

    def abort(self) -> None:
        payload = self.commit()
        _discard(self._connection, self._topic, [payload])


class RedisCommitter(spi.StreamCommitter):
    """Decides the epochs of one writer. One instance of it."""

    def __init__(
        self, connection: Connection, topic: str, writer_id: str | None
    ) -> None:
        self._connection = connection
        self._topic = topic
        self._writer = writer_id
        self._instance = uuid.uuid4().hex
        self._has_claimed = False

    def commit(
        self,
        epoch: int,
        messages: Sequence[spi.CommitMessage],
        source_position: spi.Position | None = None,
    ) -> spi.LastCommit | None:
        staged = [*_staged(self._topic, (message.payload for message in messages))]
        keys = [layout.topic_key(self._topic), layout.writers_key(self._topic)]
        for key, partition, _ in staged:
            keys += [key, layout.stream_key(self._topic, partition)]
        verdict, *held = self._connection.run(
            scripts.COMMIT,
            keys,
            self._writer or "",
            epoch,
            self._instance,
            int(self._has_claimed),
            _record(epoch, messages, source_position),
            *(rows for _, _, rows in staged),
        )
        match verdict:
            case b"committed":
                self._has_claimed = True
                return None
            case b"held":
                return _parse(held[0])
            case b"fenced":
                msg = f"writer {self._writer!r} was claimed by a later instance"
                raise spi.WriterFenced(msg)
            case b"full":
                msg = f"no offsets are left for the rows of epoch {epoch}"
                remedy = "write to a new topic"
                raise spi.StorageFailed(msg, remedy=remedy)
            case b"not staged":
                msg = f"staged rows of epoch {epoch} are not in Redis any more"
                raise spi.CorruptData(msg)
        raise _no_topic(self._topic)

    def abort(self, epoch: int, messages: Sequence[spi.CommitMessage]) -> None:
        payloads = [message.payload for message in messages]
        _discard(self._connection, self._topic, payloads)

    def last(self) -> spi.LastCommit | None:
        if self._writer is None:
            return None
        if self._has_claimed:
            return fetch_last(self._connection, self._topic, self._writer)
        keys = [layout.topic_key(self._topic), layout.writers_key(self._topic)]
        arguments = (self._writer, self._instance)
        found, *record = self._connection.run(scripts.CLAIM, keys, *arguments)
        if not found:
            raise _no_topic(self._topic)
        self._has_claimed = True
        return _parse(record[0]) if record else None


class RedisProducerFactory(spi.ProducerFactory):
    """Makes the two above; holds the connections that they share."""

    CLAIMS = spi.Claims(
        durable=True,
        shared=True,
        idempotent=True,
        epoch_visibility=spi.EpochVisibility.WHOLE,
    )
    CARRIES = frozenset({"_key"})

    def __init__(self, config: spi.StreamConfig) -> None:
        super().__init__(config)
        self._connection = Connection(config)

    def create_writer(self, context: spi.WriteContext) -> RedisWriter:
        return RedisWriter(self._connection, self.config)

    def create_committer(self, writer_id: str | None) -> RedisCommitter:
        return RedisCommitter(self._connection, self.config.topic, writer_id)

    def fetch_last_commit(self, writer_id: str) -> spi.LastCommit | None:
        return fetch_last(self._connection, self.config.topic, writer_id)

    def fetch_partition_count(self, topic: str) -> int:
        count: Any = self._connection.client.hget(layout.topic_key(topic), "partitions")
        if count is None:
            raise _no_topic(topic)
        return int(count)

    def fetch_schema(self, topic: str) -> pa.Schema:
        return spi.envelope_schema()

    def close(self) -> None:
        self._connection.close()


def fetch_last(
    connection: Connection, topic: str, writer: str
) -> spi.LastCommit | None:
    """What a writer committed last; claims nothing."""
    key = layout.writers_key(topic)
    record: Any = connection.client.hget(key, f"record {writer}")
    return _parse(record)


def _fetch_longest(connection: Connection) -> int:
    """Bytes that a value may have: one byte marks what there is."""
    try:
        found: Any = connection.client.config_get("proto-max-bulk-len")
    except redis.exceptions.ResponseError:
        found = {}  # not permitted, or no such command on a hosted server
    return int(found.get("proto-max-bulk-len", _LONGEST)) - 1


def _texts(values: pa.Array, keys: pa.Array | None) -> Iterator[bytes]:
    """Value and key of each row, as the script takes them: + before what there is."""
    pairs = zip(
        values.to_pylist(),
        [None] * len(values) if keys is None else keys.to_pylist(),
        strict=True,
    )
    for pair in pairs:
        for text in pair:
            yield _NOTHING if text is None else b"+" + text


def _staged(topic: str, payloads: Iterable[Any]) -> Iterator[tuple[str, int, int]]:
    """Key, partition and rows of each staged list."""
    for payload in payloads:
        for partition, rows in payload["rows"]:
            yield (
                layout.staged_key(topic, payload["attempt"], partition),
                partition,
                rows,
            )


def _discard(connection: Connection, topic: str, payloads: Iterable[Any]) -> None:
    keys = [key for key, _, _ in _staged(topic, payloads)]
    if keys:
        connection.client.delete(*keys)


def _record(
    epoch: int,
    messages: Sequence[spi.CommitMessage],
    position: spi.Position | None,
) -> str:
    summary = sum((message.summary for message in messages), spi.Summary())
    record = {
        "epoch": epoch,
        "position": None if position is None else position.to_json(),
        "rows": summary.rows,
        "sums": dict(summary.sums),
    }
    return json.dumps(record)


def _parse(text: bytes | None) -> spi.LastCommit | None:
    if text is None:
        return None
    record = json.loads(text)
    position = record["position"]
    return spi.LastCommit(
        record["epoch"],
        None if position is None else spi.Position.from_json(position),
        spi.Summary(record["rows"], record["sums"]),
    )


def _no_topic(topic: str) -> spi.TopicNotFound:
    msg = f"Redis has no topic {topic!r}"
    remedy = "create it with `streamfactory topics create`"
    return spi.TopicNotFound(msg, remedy=remedy)
