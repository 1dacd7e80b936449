"""``ledger``: rows in a SQLite database as a stream, read and written exactly once.

Each row has a partition and an offset. An epoch is one transaction: it appends the rows
of all tasks, and replaces what is remembered of the writer.
"""

from __future__ import annotations

import json
import sqlite3
import uuid
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from streamfactory import spi

SCHEMA = pa.schema([pa.field("text", pa.string())])
TABLES = """
PRAGMA journal_mode = WAL;
CREATE TABLE ledger (incarnation TEXT);
CREATE TABLE partitions (id INTEGER PRIMARY KEY, earliest INTEGER, latest INTEGER);
CREATE TABLE entries (
    partition INTEGER, offset INTEGER, text TEXT, PRIMARY KEY (partition, offset)
) WITHOUT ROWID;
CREATE TABLE writers (
    id TEXT PRIMARY KEY, instance TEXT, epoch INTEGER, position TEXT, summary TEXT
);
"""
"""What a new database needs, with a row of ``ledger`` and one for each partition."""
CLAIMS = spi.Claims(
    replayable=True,
    durable=True,
    shared=True,
    idempotent=True,
    epoch_visibility=spi.EpochVisibility.WHOLE,
)


@contextmanager
def transaction(path, kind="DEFERRED"):
    """A transaction on a new connection: nothing stays open between calls."""
    if not path.exists():
        msg = f"database {str(path)!r} does not exist"
        raise spi.TopicNotFound(msg)
    database = sqlite3.connect(path, timeout=30, isolation_level=None)
    try:
        database.execute(f"BEGIN {kind}")
        yield database
        database.execute("COMMIT")
    finally:
        database.close()  # rolls back what was not committed


# --- reading


class LedgerConsumer(spi.PartitionLevelConsumer):
    """Reads one partition."""

    def __init__(self, path, partition):
        self._path, self._partition = path, partition
        with transaction(path) as database:
            self._incarnation = incarnation_of(database)

    def fetch_messages(self, start, end, limits):
        with transaction(self._path) as database:
            incarnation = incarnation_of(database)
            earliest, latest = bounds(database, self._partition)
            found = database.execute(
                "SELECT offset, text FROM entries "
                "WHERE partition = ? AND offset >= ? ORDER BY offset LIMIT ?",
                (self._partition.id, start, limits.max_rows),
            ).fetchall()
        if incarnation != self._incarnation:
            self._incarnation = incarnation
            return spi.Fetched(None, earliest, incarnation=incarnation)
        if not earliest <= start <= latest:
            msg = f"offset {start} is out of range; available: {earliest} to {latest}"
            raise spi.OffsetOutOfRange(msg, earliest=earliest, latest=latest)
        bound = {"latest": latest, "held_from": earliest, "incarnation": incarnation}
        if not found:
            return spi.Fetched(None, start, state=spi.BatchState.CAUGHT_UP, **bound)
        offsets, texts = zip(*found, strict=True)
        return spi.Fetched(
            pa.record_batch([pa.array(texts, pa.string())], schema=SCHEMA),
            offsets=pa.array(offsets, pa.int64()),
            next_offset=offsets[-1] + 1,
            **bound,
        )


class LedgerMetadata(spi.MetadataProvider):
    """Looks at the database."""

    def __init__(self, path):
        self._path = path

    def fetch_partitions(self, topics, known):
        with transaction(self._path) as database:
            incarnation = incarnation_of(database)
            found = database.execute("SELECT id, earliest, latest FROM partitions")
            return [
                spi.PartitionInfo(
                    spi.Partition(topics[0], number),
                    earliest,
                    latest,
                    incarnation=incarnation,
                )
                for number, earliest, latest in found
            ]

    def fetch_schema(self, topic):
        return SCHEMA


class LedgerConsumerFactory(spi.ConsumerFactory):
    """Makes the two above."""

    CLAIMS = CLAIMS

    def create_partition_level_consumer(
        self, client_id, partition, fields_to_read=None
    ):
        return LedgerConsumer(Path(self.config["path"]), partition)

    def create_metadata_provider(self, client_id):
        return LedgerMetadata(Path(self.config["path"]))


def incarnation_of(database):
    return database.execute("SELECT incarnation FROM ledger").fetchone()[0]


def bounds(database, partition):
    """Earliest and latest offset of a partition."""
    query = "SELECT earliest, latest FROM partitions WHERE id = ?"
    found = database.execute(query, (partition.id,)).fetchone()
    if found is None:
        msg = f"partition {partition} does not exist"
        raise spi.TopicNotFound(msg)
    return found


# --- writing


class LedgerWriter(spi.StreamWriter):
    """Keeps the rows of one attempt: nothing of it is in the database before commit.

    They travel in the commit message. Epochs that are too large for that are staged in
    a table, under the id of the attempt.
    """

    def __init__(self):
        self._rows = []

    def write(self, outgoing):
        texts = outgoing.rows.column("text").to_pylist()
        self._rows += [(outgoing.partition, text) for text in texts]

    def commit(self):
        return self._rows


class LedgerCommitter(spi.StreamCommitter):
    """Commits epochs of one writer."""

    def __init__(self, path, writer_id):
        self._path, self._writer = path, writer_id
        self._instance, self._claimed = uuid.uuid4().hex, False

    def last(self):
        self._claim()
        with transaction(self._path) as database:
            return last_commit(database, self._writer)

    def commit(self, epoch, messages, source_position=None):
        self._claim()
        # IMMEDIATE: what is checked below holds until the transaction ends.
        with transaction(self._path, "IMMEDIATE") as database:
            last = last_commit(database, self._writer)
            if last is not None and epoch <= last.epoch:
                return last  # the first commit of an epoch wins
            self._check_instance(database, epoch)
            append(database, [row for m in messages for row in m.payload or ()])
            summary = sum((m.summary for m in messages), spi.Summary())
            position = None if source_position is None else source_position.to_json()
            known = json.dumps([summary.rows, dict(summary.sums)])
            database.execute(
                "UPDATE writers SET epoch = ?, position = ?, summary = ? WHERE id = ?",
                (epoch, position, known, self._writer),
            )
        return None

    def _claim(self):
        """Once: an instance that was fenced stays fenced."""
        if self._writer is not None and not self._claimed:
            with transaction(self._path, "IMMEDIATE") as database:
                database.execute(
                    "INSERT INTO writers (id, instance) VALUES (?, ?) "
                    "ON CONFLICT (id) DO UPDATE SET instance = excluded.instance",
                    (self._writer, self._instance),
                )
            self._claimed = True

    def _check_instance(self, database, epoch):
        query = "SELECT instance FROM writers WHERE id = ?"
        found = database.execute(query, (self._writer,)).fetchone()
        if found is not None and found[0] != self._instance:
            msg = f"epoch {epoch}: another instance has claimed {self._writer!r}"
            raise spi.WriterFenced(msg)


class LedgerProducerFactory(spi.ProducerFactory):
    """Makes the two above."""

    CLAIMS = CLAIMS

    def create_writer(self, context):
        return LedgerWriter()

    def create_committer(self, writer_id):
        return LedgerCommitter(Path(self.config["path"]), writer_id)

    def fetch_last_commit(self, writer_id):
        with transaction(Path(self.config["path"])) as database:
            return last_commit(database, writer_id)

    def fetch_partition_count(self, topic):
        with transaction(Path(self.config["path"])) as database:
            return database.execute("SELECT count(*) FROM partitions").fetchone()[0]

    def fetch_schema(self, topic):
        return SCHEMA


def append(database, rows):
    """Add rows (partition, text) behind the latest offsets."""
    latest = dict(database.execute("SELECT id, latest FROM partitions"))
    for partition, text in rows:
        entry = (partition, latest[partition], text)
        database.execute("INSERT INTO entries VALUES (?, ?, ?)", entry)
        latest[partition] += 1
    moved = [(offset, partition) for partition, offset in latest.items()]
    database.executemany("UPDATE partitions SET latest = ? WHERE id = ?", moved)


def last_commit(database, writer_id):
    query = "SELECT epoch, position, summary FROM writers WHERE id = ?"
    found = database.execute(query, (writer_id,)).fetchone()
    if found is None or found[0] is None:
        return None
    epoch, position, summary = found
    position = None if position is None else spi.Position.from_json(position)
    return spi.LastCommit(epoch, position, spi.Summary(*json.loads(summary)))


@spi.hookimpl
def streamfactory_backend():
    return spi.Backend(
        name="ledger",
        doc="Rows in a SQLite database.",
        spi_level=1,
        options=(spi.Option("path", "The database.", spi.PATH, required=True),),
        consumer_factory=LedgerConsumerFactory,
        producer_factory=LedgerProducerFactory,
        translate=spi.ErrorTable(
            {
                sqlite3.OperationalError: spi.TransientError,
                sqlite3.Error: spi.PermanentError,
            }
        ),
    )
