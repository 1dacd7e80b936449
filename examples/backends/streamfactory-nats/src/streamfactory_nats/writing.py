"""Writing: tasks stage rows, a committer decides epochs and places them."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from nats.aio.client import Client
from streamfactory import spi

from streamfactory_nats import layout
from streamfactory_nats.commits import (
    Commits,
    Pending,
    Record,
    Staged,
    State,
    StateMoved,
    new_run,
)
from streamfactory_nats.connection import Connection
from streamfactory_nats.messages import pack

_CHUNK: Final = 256 * 1024
"""Bytes of rows in a staged message, roughly."""
_CHUNK_ROWS: Final = 4096
_HEADERS: Final = 1024
"""Bytes that headers take beside value and key."""


class NatsWriter(spi.StreamWriter):
    """Stages the rows of one attempt."""

    def __init__(self, connection: Connection, topic: str) -> None:
        self._connection = connection
        self._topic = topic
        self._attempt = uuid.uuid4().hex
        self._staged: list[Staged] = []
        self._rows = 0

    def write(self, outgoing: spi.Outgoing) -> None:
        before, self._rows = self._rows, self._rows + outgoing.rows.num_rows

        async def stage(client: Client) -> None:
            jetstream = client.jetstream(timeout=self._connection.timeout)
            for start, stop in _chunks(outgoing, before, client.max_payload):
                answer = await jetstream.publish(
                    layout.staged_subject(self._topic, self._attempt),
                    pack(outgoing, start, stop),
                )
                rows = stop - start
                self._staged.append(Staged(answer.seq, outgoing.partition, rows))

        self._connection.run(stage)

    def commit(self) -> Any:
        staged = [[s.sequence, s.partition, s.rows] for s in self._staged]
        return {"attempt": self._attempt, "staged": staged}

    def abort(self) -> None:
        if self._staged:
            _discard(self._connection, self._topic, [self._attempt])


class NatsCommitter(spi.StreamCommitter):
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
        record = _record(self._instance, epoch, messages, source_position)

        async def decide(client: Client) -> spi.LastCommit | None:
            commits = self._commits(client)
            while True:
                state = await _settled(commits, self._writer)
                held = None if state.record is None else state.record.last()
                if held is not None and held.epoch >= epoch:
                    await commits.discard(_attempts(messages))
                    return held
                self._check_claim(state)
                pending = await self._pending(client, record, messages)
                try:
                    await commits.decide(state, pending)
                except StateMoved:
                    continue
                await _settled(commits, self._writer)
                return None

        held = self._connection.run(decide, self._deadline(messages))
        self._has_claimed = True
        return held

    def abort(self, epoch: int, messages: Sequence[spi.CommitMessage]) -> None:
        _discard(self._connection, self._topic, _attempts(messages))

    def last(self) -> spi.LastCommit | None:
        async def claim(client: Client) -> spi.LastCommit | None:
            commits = self._commits(client)
            while True:
                state = await _settled(commits, self._writer)
                held = None if state.record is None else state.record.last()
                if self._has_claimed or self._writer is None:
                    return held
                record = state.record or Record(self._instance)
                record = replace(record, instance=self._instance)
                try:
                    await commits.publish_record(state, self._writer, record)
                except StateMoved:
                    continue
                return held

        held = self._connection.run(claim)
        self._has_claimed = True
        return held

    def _commits(self, client: Client) -> Commits:
        return Commits(client, self._topic, self._connection.timeout)

    def _check_claim(self, state: State) -> None:
        claimed = None if state.record is None else state.record.instance
        if self._has_claimed and claimed != self._instance:
            msg = f"writer {self._writer!r} was claimed by a later instance"
            raise spi.WriterFenced(msg)

    async def _pending(
        self, client: Client, record: Record, messages: Sequence[spi.CommitMessage]
    ) -> Pending:
        staged = tuple(Staged(*s) for m in messages for s in m.payload["staged"])
        infos = await layout.fetch_partitions(
            client, self._topic, self._connection.timeout
        )
        used = {s.partition for s in staged}
        bases = {i.partition.id: i.last for i in infos if i.partition.id in used}
        if set(bases) != used:
            msg = f"topic {self._topic!r} has no partitions {sorted(used - set(bases))}"
            raise spi.TopicNotFound(msg)
        return Pending(self._writer, record, staged, _attempts(messages), bases)

    def _deadline(self, messages: Sequence[spi.CommitMessage]) -> float:
        """Seconds that placing the rows may take, on a slow server."""
        rows = sum(message.summary.rows for message in messages)
        return float(self._connection.timeout + rows / 1000)


class NatsProducerFactory(spi.ProducerFactory):
    """Makes the two above; holds the connection that they share."""

    CLAIMS = spi.Claims(
        replayable=True,
        durable=True,
        shared=True,
        idempotent=True,
        epoch_visibility=spi.EpochVisibility.WHOLE,
    )
    CARRIES = frozenset({"_key"})

    def __init__(self, config: spi.StreamConfig) -> None:
        super().__init__(config)
        self._connection = Connection(config)

    def create_writer(self, context: spi.WriteContext) -> NatsWriter:
        return NatsWriter(self._connection, self.config.topic)

    def create_committer(self, writer_id: str | None) -> NatsCommitter:
        return NatsCommitter(self._connection, self.config.topic, writer_id)

    def fetch_last_commit(self, writer_id: str) -> spi.LastCommit | None:
        async def look(client: Client) -> spi.LastCommit | None:
            commits = Commits(client, self.config.topic, self._connection.timeout)
            state = await commits.load(writer_id)
            if state.pending is not None and state.pending.writer == writer_id:
                return state.pending.record.last()  # decided; whoever commits places it
            return None if state.record is None else state.record.last()

        return self._connection.run(look)

    def fetch_partition_count(self, topic: str) -> int:
        infos = self._connection.run(
            lambda client: layout.fetch_partitions(
                client, topic, self._connection.timeout
            )
        )
        if not infos[0].managed:
            msg = f"JetStream stream {topic!r} was not created as a topic"
            remedy = "write to a topic of `streamfactory topics create`"
            raise spi.Unsupported(msg, remedy=remedy)
        return len(infos)

    def fetch_schema(self, topic: str) -> pa.Schema:
        return spi.envelope_schema()

    def close(self) -> None:
        self._connection.close()


async def _settled(commits: Commits, writer: str | None) -> State:
    """The state without a pending run: one that is pending is finished first."""
    while True:
        state = await commits.load(writer)
        if state.pending is None:
            return state
        with contextlib.suppress(StateMoved):
            await commits.finish(state)


def _chunks(
    outgoing: spi.Outgoing, before: int, max_payload: int
) -> Iterable[tuple[int, int]]:
    """Ranges of rows, each for one staged message, behind ``before`` rows.

    Raises:
        spi.MessageTooLarge: permanent; a row does not fit into a message of NATS.
    """
    sizes = _sizes(outgoing.rows.column("value"))
    if outgoing.key is not None:
        # In a message's header, a key is base64.
        sizes = pc.add(sizes, pc.multiply(_sizes(outgoing.key), 2))
    most = max_payload - _HEADERS
    start = held = 0
    for index, size in enumerate(sizes.to_pylist()):
        if size > most:
            msg = f"row {before + index} has a message of {size} bytes, the server "
            msg += f"accepts {most}"
            raise spi.MessageTooLarge(msg, remedy="raise max_payload of the server")
        rows = index - start
        if rows and (held + size > min(_CHUNK, most // 2) or rows >= _CHUNK_ROWS):
            yield start, index
            start, held = index, 0
        held += size + 16
    if start < outgoing.rows.num_rows:
        yield start, outgoing.rows.num_rows


def _sizes(column: pa.Array) -> pa.Array:
    return pc.fill_null(pc.binary_length(column), 0).cast(pa.int64())


def _record(
    instance: str,
    epoch: int,
    messages: Sequence[spi.CommitMessage],
    position: spi.Position | None,
) -> Record:
    summary = sum((message.summary for message in messages), spi.Summary())
    text = None if position is None else position.to_json()
    sums = dict(summary.sums)
    return Record(instance, epoch, text, summary.rows, sums, new_run())


def _attempts(messages: Iterable[spi.CommitMessage]) -> tuple[str, ...]:
    return tuple(message.payload["attempt"] for message in messages)


def _discard(connection: Connection, topic: str, attempts: Sequence[str]) -> None:
    connection.run(
        lambda client: Commits(client, topic, connection.timeout).discard(attempts)
    )
