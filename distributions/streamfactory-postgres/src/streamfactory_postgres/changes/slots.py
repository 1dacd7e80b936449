"""Replication slots of tables: what they hold, and what was acknowledged.

A slot and what readers have acknowledged are remembered in ``slots`` of the schema of
state, since a slot alone knows neither when it was made nor a row within a transaction.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import sql
from streamfactory import spi

from streamfactory_postgres import layout
from streamfactory_postgres.changes.numbering import lsn_of, offset_of, text_of
from streamfactory_postgres.connection import Connection

log = logging.getLogger("streamfactory")

SNAPSHOT_OFFSET: Final = "_streamfactory_row"
"""The column of offsets of a snapshot."""
_STEP: Final = 256 << 20
"""Bytes of WAL that one statement moves a slot over: the server reads them."""
_FLUSHED: Final = 10
"""The column of `fetch_slot` with the end of the WAL."""
_WARN_EVERY: Final = 60.0
_MIB: Final = 1 << 20


@dataclass(frozen=True)
class Slot:
    """A slot at one moment. Positions in the WAL are numbers of bytes."""

    name: str
    incarnation: str
    relation: int
    origin: int
    """Its changes were committed at or behind it."""
    made: int
    """When it was made, in microseconds since 1970, UTC."""
    rows: int
    """Of the snapshot of the table; their offsets are 0, 1, ..."""
    earliest: int
    """Offsets before it are acknowledged."""
    confirmed: int
    """Changes that were committed before it are not available any more."""
    restart: int
    """WAL from here on is kept for it."""
    flushed: int
    """The end of the server's WAL."""
    status: str
    """Of its WAL: reserved, extended, unreserved or lost."""
    safe: int | None
    """Bytes of WAL that can be written before it is lost; None for no limit."""

    @property
    def begin(self) -> int:
        """The first offset behind those of the snapshot."""
        return offset_of(self.origin)

    @property
    def held(self) -> int:
        """Bytes of WAL on the server's disk because of it."""
        return self.flushed - self.restart

    def danger(self, most: int) -> str | None:
        """What is wrong where the slot holds so much WAL that it has to be looked at.

        Args:
            most: Bytes that it may hold where the server sets no limit.
        """
        if self.safe is not None:
            if self.status != "unreserved" and self.safe >= self.held // 4:
                return None
            left = f"it is lost after {max(0, self.safe) // _MIB} MiB more"
        elif self.held >= most:
            left = "max_slot_wal_keep_size sets no limit: the disk of the server fills"
        else:
            return None
        return f"slot {self.name!r} holds {self.held // _MIB} MiB of WAL; {left}"


def fetch_slot(connection: Connection, config: spi.StreamConfig, topic: str) -> Slot:
    """Look up the slot of a table.

    Raises:
        spi.TopicNotFound: permanent; there is none, or the table is another one now.
        spi.CorruptData: data_loss; the server removed WAL that the slot needs.
    """
    query = sql.SQL(
        """
SELECT s.slot, concat_ws('.', c.system_identifier, d.oid, s.relation, s.origin),
    s.relation::bigint, (s.origin - '0/0')::bigint,
    (extract(epoch FROM s.made) * 1000000)::bigint, s.rows, s.acknowledged,
    (s.advanced - '0/0')::bigint, (r.confirmed_flush_lsn - '0/0')::bigint,
    (r.restart_lsn - '0/0')::bigint, (pg_current_wal_flush_lsn() - '0/0')::bigint,
    r.wal_status, r.safe_wal_size, current_setting('wal_block_size')::int
FROM {slots} s CROSS JOIN pg_control_system() c CROSS JOIN pg_database d
    LEFT JOIN pg_replication_slots r ON r.slot_name = s.slot
WHERE d.datname = current_database() AND s.relation = to_regclass({table})
    AND s.slot = {name} AND s.origin IS NOT NULL
"""
    ).format(
        slots=_slots(config),
        table=sql.Literal(layout.table_of(topic).as_string()),
        name=slot_name(config, topic),
    )
    try:
        found = connection.execute(query).fetchone()
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        found = None
    if found is None:
        msg = f"PostgreSQL has no slot for changes of table {topic!r}"
        remedy = "create it with `streamfactory topics create`"
        raise spi.TopicNotFound(msg, remedy=remedy)
    *_, block = found
    if found[_FLUSHED] % block == 0:
        # The server writes whole pages of transactions that are not committed: a
        # record may go on behind this one, and no session gets beyond its beginning.
        # The server writes the rest with the next commit, or within 15 s.
        connection.execute("SELECT pg_logical_emit_message(true, 'streamfactory', '')")
        found = connection.execute(query).fetchone() or found
    return _slot(found, topic)


def _slot(found: tuple[Any, ...], topic: str) -> Slot:
    name, incarnation, relation, origin, made, rows, acknowledged = found[:7]
    advanced, confirmed, restart, flushed, status, safe, _ = found[7:]
    if confirmed is None or restart is None or status == "lost":
        why = "was dropped" if status is None else "lost WAL that it needs"
        msg = f"slot {name!r} {why}: changes of table {topic!r} are missing"
        remedy = (
            "delete the topic and create it again, which makes a new snapshot; "
            "raise max_slot_wal_keep_size"
        )
        raise spi.CorruptData(msg, remedy=remedy)
    # Whoever advances the slot past us removes changes that nobody acknowledged.
    removed = confirmed > max(advanced, lsn_of(acknowledged), origin)
    return Slot(
        name,
        incarnation,
        relation,
        origin,
        made,
        rows,
        offset_of(confirmed) if removed else acknowledged,
        confirmed,
        restart,
        flushed,
        status,
        safe,
    )


def slot_name(config: spi.StreamConfig, topic: str) -> sql.Composable:
    """An expression for the name of the slot of a table."""
    if config.given("slot"):
        return sql.Literal(config["slot"])
    table = sql.Literal(layout.table_of(topic).as_string())
    return sql.SQL("('streamfactory_' || to_regclass({})::oid)").format(table)


def snapshot_of(config: spi.StreamConfig, name: str) -> sql.Identifier:
    """The table with the snapshot of a slot."""
    return sql.Identifier(config["state.schema"], f"snapshot_{name}")


def acknowledge(
    connection: Connection, config: spi.StreamConfig, slot: Slot, offset: int
) -> None:
    """Release what is before an offset, for ever.

    Args:
        connection: In autocommit mode.
        config: Of the stream.
        slot: As it is now.
        offset: Exclusive; one before what was acknowledged has no effect.
    """
    offset = min(offset, offset_of(slot.flushed))
    if offset <= slot.earliest:
        return
    update = sql.SQL(
        "UPDATE {} SET acknowledged = greatest(acknowledged, {}) WHERE slot = {}"
    ).format(_slots(config), offset, sql.Literal(slot.name))
    connection.execute(update)
    if offset < slot.begin:
        return
    if slot.earliest < slot.begin:
        drop = sql.SQL("DROP TABLE IF EXISTS {}")
        connection.execute(drop.format(snapshot_of(config, slot.name)))
    _move(connection, config, slot, lsn_of(offset))


def advance(
    connection: Connection, config: spi.StreamConfig, slot: Slot, to: int
) -> None:
    """Let WAL go that has no changes of the table. Nothing is acknowledged by that.

    Args:
        connection: In autocommit mode.
        config: Of the stream.
        slot: As it was when the caller saw that all changes before ``to`` are
            acknowledged.
        to: A position in the WAL.
    """
    update = sql.SQL(
        "UPDATE {} SET advanced = greatest(advanced, {}::pg_lsn) WHERE slot = {}"
    ).format(_slots(config), sql.Literal(text_of(to)), sql.Literal(slot.name))
    connection.execute(update)
    _move(connection, config, slot, to)


def _move(
    connection: Connection, config: spi.StreamConfig, slot: Slot, to: int
) -> None:
    """Advance the slot in steps; what is left when the time is over waits."""
    deadline = time.monotonic() + config["connection.timeout.millis"] / 1000 / 2
    at = slot.confirmed
    while at < to and time.monotonic() < deadline:
        at = min(to, at + _STEP)
        try:
            connection.execute(
                sql.SQL("SELECT pg_replication_slot_advance({}, {})").format(
                    sql.Literal(slot.name), sql.Literal(text_of(at))
                )
            )
        except psycopg.errors.ObjectNotInPrerequisiteState:
            # Another acknowledgement was faster, and has moved it further.
            continue


def _slots(config: spi.StreamConfig) -> sql.Identifier:
    return sql.Identifier(config["state.schema"], "slots")


class Watch:
    """Warns of slots that hold too much WAL, once a minute each. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._warned: dict[str, float] = {}

    def look(self, slot: Slot, topic: str) -> None:
        """Log a warning, where one is due."""
        danger = slot.danger(self._most)
        if danger is None:
            return
        now = time.monotonic()
        with self._lock:
            if now - self._warned.get(slot.name, -_WARN_EVERY) < _WARN_EVERY:
                return
            self._warned[slot.name] = now
        log.warning(
            "%s. Read and acknowledge the changes of table %r, or delete the topic "
            "with `streamfactory topics delete`",
            danger,
            topic,
        )
