"""Reading: the snapshot of a table, then its changes in the order of commits."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar, Final

import pyarrow as pa
from psycopg import sql
from streamfactory import spi
from streamfactory.spi.waking import Wake

from streamfactory_postgres import columns
from streamfactory_postgres.changes import slots
from streamfactory_postgres.changes.counting import count_changes, find_commit
from streamfactory_postgres.changes.decoding import Decoder
from streamfactory_postgres.changes.numbering import lsn_of, offset_of, text_of
from streamfactory_postgres.changes.rows import FIELDS, NAMES, with_changes
from streamfactory_postgres.changes.session import Session
from streamfactory_postgres.connection import Connection, Connections
from streamfactory_postgres.ranges import RangeReader
from streamfactory_postgres.reading import chosen_fields

_REST: Final = 0.02
"""Seconds between two questions how far the server is; rows wait as long for more."""
_SLACK: Final = 16 << 20
"""Bytes of WAL without changes of the table that a slot may hold."""


class ChangesConsumer(spi.PartitionLevelConsumer):
    """Reads one table. It has two connections: for the snapshot, and for changes."""

    def __init__(
        self,
        config: spi.StreamConfig,
        connections: Connections,
        watch: slots.Watch,
        topic: str,
        fields: Sequence[str] | None,
    ) -> None:
        self._config = config
        self._connections = connections
        self._watch = watch
        self._topic = topic
        self._fields = fields
        self._wake = Wake()
        self._slot: slots.Slot | None = None
        self._latest = 0
        self._snapshot: RangeReader | None = None
        self._snapshot_schema = pa.schema([])
        self._session: Session | None = None
        self._decoder = Decoder(config, connections, topic, fields)

    def fetch_messages(
        self, start: int, end: int | None, limits: spi.FetchLimits
    ) -> spi.Fetched:
        deadline = time.monotonic() + limits.timeout
        known, slot = self._slot, self._look()
        if known is not None and known.incarnation != slot.incarnation:
            self._drop_session()
            self._snapshot, self._latest = None, 0
            return spi.Fetched(None, slot.earliest, incarnation=slot.incarnation)
        if start < slot.begin:
            fetched = self._fetch_snapshot(slot, start, end, limits)
            if fetched is not None:
                return fetched
            start = slot.begin
        if end is not None and start >= end:
            return self._fetched(slot, None, end)
        if self._open(start):
            # What was copied is the slot as it is now, not as it was before.
            again = self._look()
            if again.incarnation != slot.incarnation:
                self._drop_session()
                return spi.Fetched(None, again.earliest, incarnation=again.incarnation)
            slot = again
            # Opening it may have taken all of the time.
            deadline = max(deadline, time.monotonic() + _REST)
        return self._fetch_changes(slot, start, end, limits, deadline)

    def wake(self) -> None:
        self._wake.set()

    def close(self) -> None:
        self._drop_session()
        self._wake.close()

    def _look(self) -> slots.Slot:
        with self._connections.borrow() as connection:
            self._slot = slots.fetch_slot(connection, self._config, self._topic)
        self._watch.look(self._slot, self._topic)
        return self._slot

    def _fetched(
        self,
        slot: slots.Slot,
        rows: pa.RecordBatch | None,
        next_offset: int,
        offsets: pa.Int64Array | None = None,
        *,
        state: spi.BatchState | None = spi.BatchState.CAUGHT_UP,
        latest: int | None = None,
        size: int = 0,
    ) -> spi.Fetched:
        self._latest = offset_of(slot.flushed) if latest is None else latest
        return spi.Fetched(
            rows,
            next_offset,
            offsets,
            state=state if rows is None else None,
            latest=self._latest,
            held_from=slot.earliest,
            incarnation=slot.incarnation,
            size=size,
        )

    def _fetch_snapshot(
        self, slot: slots.Slot, start: int, end: int | None, limits: spi.FetchLimits
    ) -> spi.Fetched | None:
        """Rows of the snapshot; None behind the last one."""
        stop = slot.rows if end is None else min(end, slot.rows)
        if start >= stop:
            return None
        with self._connections.borrow() as connection:
            table = slots.snapshot_of(self._config, slot.name)
            ranges = self._snapshot or self._describe_snapshot(connection, table)
            rows, offsets, size = ranges.read(connection, start, stop, limits)
        if rows is None or offsets is None:
            return None
        count = rows.num_rows
        made = with_changes(
            rows.columns,
            self._snapshot_schema,
            pa.repeat(pa.scalar("insert"), count),
            pa.repeat(pa.scalar(text_of(slot.origin)), count),
            pa.repeat(pa.scalar(slot.made, pa.int64()), count),
        )
        return self._fetched(slot, made, offsets[-1].as_py() + 1, offsets, size=size)

    def _describe_snapshot(
        self, connection: Connection, table: sql.Identifier
    ) -> RangeReader:
        found = columns.describe(connection, table)
        schema = chosen_fields(found.readable(slots.SNAPSHOT_OFFSET), self._fields)
        self._snapshot_schema = schema
        self._snapshot = RangeReader(table, slots.SNAPSHOT_OFFSET, schema)
        return self._snapshot

    def _open(self, start: int) -> bool:
        """Continue at an offset; whether that took a new session."""
        session = self._session
        is_there = session is not None and not session.is_stale
        if is_there and self._decoder.is_at(start):
            return False
        self._drop_session()
        assert self._slot is not None
        self._session = Session(self._config, self._slot.name, lsn_of(start))
        self._decoder.seek(start, self._slot.relation)
        return True

    def _drop_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _fetch_changes(
        self,
        slot: slots.Slot,
        start: int,
        end: int | None,
        limits: spi.FetchLimits,
        deadline: float,
    ) -> spi.Fetched:
        session, decoder = self._session, self._decoder
        assert session is not None
        requested = 0.0
        while not decoder.is_full(limits):
            if end is not None and offset_of(session.reached) >= end:
                break
            message = session.receive()
            if message is not None:
                commit = decoder.decode(message)
                if commit is not None:
                    session.deliver(commit.end)
                continue
            is_behind = session.reached < slot.flushed
            now = time.monotonic()
            if (
                now >= deadline
                or self._wake.is_set
                or (decoder.ready and not is_behind)
            ):
                break
            if is_behind and now - requested > _REST:
                session.request_position()
                requested = now
            rest = _REST if is_behind else deadline - now
            has_more = session.wait(min(rest, deadline - now), [self._wake.fileno()])
            if decoder.ready and not has_more:
                break
        if decoder.ready:
            rows, offsets, size = decoder.take()
            return self._fetched(slot, rows, decoder.next_offset, offsets, size=size)
        if self._wake.is_set:
            self._wake.clear()
            return self._fetched(slot, None, start, state=None)
        decoder.pass_over(session.reached)
        self._release(slot, session)
        if end is not None and offset_of(session.reached) >= end:
            return self._fetched(slot, None, end)
        if session.reached < slot.flushed or not decoder.is_between:
            return self._fetched(slot, None, start, state=None)
        # WAL of other tables moves on all the time, and by each acknowledgement: that
        # is no news for a reader, unless an answer had a latest offset behind it.
        is_far = session.reached - lsn_of(start) > _SLACK
        at = decoder.next_offset if is_far else max(start, self._latest)
        return self._fetched(slot, None, at, latest=at)

    def _release(self, slot: slots.Slot, session: Session) -> None:
        """Let the slot pass WAL of other tables, which nobody acknowledges."""
        if slot.earliest < self._decoder.rows_end or not self._decoder.is_between:
            return
        if session.reached - slot.confirmed > _SLACK:
            with self._connections.borrow() as connection:
                slots.advance(connection, self._config, slot, session.reached)


class ChangesMetadata(spi.MetadataProvider):
    """Looks at slots."""

    def __init__(
        self, config: spi.StreamConfig, connections: Connections, watch: slots.Watch
    ) -> None:
        self._config = config
        self._connections = connections
        self._watch = watch

    def fetch_partitions(
        self, topics: Sequence[str], known: Collection[spi.Partition]
    ) -> Sequence[spi.PartitionInfo]:
        return [self._info(topic) for topic in topics]

    def fetch_schema(self, topic: str) -> pa.Schema:
        with self._connections.borrow() as connection:
            table = columns.describe(connection, topic, self._config.get("columns"))
        schema = table.decoded()
        taken = NAMES.intersection(schema.names)
        if taken:
            msg = f"table {topic!r} has a column {min(taken)!r}, and so have changes"
            raise spi.SchemaMismatch(msg, remedy="leave it out with the option columns")
        return pa.schema([*schema, *FIELDS])

    def fetch_offsets_at(
        self, timestamp_ms: int, partitions: Collection[spi.Partition]
    ) -> Mapping[spi.Partition, int | None]:
        return {
            partition: find_commit(
                self._config, self._look(partition.topic), timestamp_ms * 1000
            )
            for partition in partitions
        }

    def fetch_extents(
        self, partition: spi.Partition, start: int, end: int, most: int | None
    ) -> Sequence[spi.Extent]:
        slot = self._look(partition.topic)
        extents = []
        if start < min(end, slot.rows):
            extents.append(spi.Extent(start, min(end, slot.rows)))
            if most is not None:
                most -= extents[0].end - start
        begin = max(start, slot.begin)
        if begin < end and (most is None or most > 0):
            extents += count_changes(self._config, slot, begin, end, most)
        return extents

    def _look(self, topic: str) -> slots.Slot:
        with self._connections.borrow() as connection:
            slot = slots.fetch_slot(connection, self._config, topic)
        self._watch.look(slot, topic)
        return slot

    def _info(self, topic: str) -> spi.PartitionInfo:
        slot = self._look(topic)
        return spi.PartitionInfo(
            spi.Partition(topic, 0),
            slot.earliest,
            offset_of(slot.flushed),
            incarnation=slot.incarnation,
        )


class ChangesConsumerFactory(spi.ConsumerFactory):
    """Makes the two above; holds the connections of metadata."""

    CLAIMS = spi.Claims(replayable=True, durable=True, shared=True, redelivers=True)
    SPARSE_OFFSETS: ClassVar = True

    def __init__(self, config: spi.StreamConfig) -> None:
        super().__init__(config)
        self._connections = Connections(config)
        self._watch = slots.Watch(config["slot.warning.bytes"])

    def create_partition_level_consumer(
        self,
        client_id: str,
        partition: spi.Partition,
        fields_to_read: Sequence[str] | None = None,
    ) -> ChangesConsumer:
        return ChangesConsumer(
            self.config,
            self._connections,
            self._watch,
            partition.topic,
            fields_to_read,
        )

    def create_metadata_provider(self, client_id: str) -> ChangesMetadata:
        return ChangesMetadata(self.config, self._connections, self._watch)

    def acknowledge(self, position: spi.Position) -> None:
        """Release what is stored elsewhere: the snapshot, and WAL."""
        for partition, offset in position.items():
            with self._connections.borrow() as connection:
                slot = slots.fetch_slot(connection, self.config, partition.topic)
                if position.incarnations.get(partition) == slot.incarnation:
                    slots.acknowledge(connection, self.config, slot, offset)

    def close(self) -> None:
        self._connections.close()
