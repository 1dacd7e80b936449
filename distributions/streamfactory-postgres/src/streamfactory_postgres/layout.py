"""What lies in the database, and how rows are numbered.

A table that is read as a stream has a column of offsets, by default ``_offset``, which
rises in the order in which readers may see rows. An identity or a sequence does not:
a transaction that took number 8 may commit after the one that took 9, and a reader that
has passed 9 never returns to 8. An offset is therefore::

    transaction id * 2**24 + number within the transaction

Ids of transactions are 64 bits wide (``xid8``) and never reused. A reader reads only
rows of transactions below the *horizon*, the oldest transaction that still runs
(``pg_snapshot_xmin``): what is below has been decided, and no row can appear there.

24 bits number the rows of a transaction: a transaction writes at most 16,777,216 rows.
39 bits are left for ids: 550 billion transactions of one database cluster.

The schema ``streamfactory`` (option ``state.schema``) has

- ``topics``: by table, the first offset that no row was deleted from,
- ``writers``: by table and writer, the last epoch, the instance and the position,
- ``staged_<time>_<attempt>``: rows of an epoch that is not decided,
- ``slots``: by replication slot, the table, where its changes begin, the rows of its
  snapshot, and what was acknowledged,
- ``snapshot_<slot>``: the rows that the table had when the slot was made.
"""

from __future__ import annotations

import re
from typing import Final

from psycopg import sql
from streamfactory import spi

ORDINAL_BITS: Final = 24
MOST_ROWS: Final = 1 << ORDINAL_BITS
"""Of one transaction."""
_PART: Final = r"[^.\"\x00-\x1f\x7f]{1,63}"
_NAME: Final = re.compile(rf"(?:{_PART}\.)?{_PART}")
_LOCK: Final = 7_310_865_122
"""Of `state`: two sessions that create a schema at once collide in the catalog."""
HORIZON: Final = sql.SQL(
    f"(pg_snapshot_xmin(pg_current_snapshot())::text::bigint << {ORDINAL_BITS})"
)
"""Offsets below it are decided."""


def topic_problem(name: str) -> str | None:
    """What is wrong with a topic's name; None if nothing."""
    if _NAME.fullmatch(name) is None:
        return "is not the name of a table: table or schema.table, without quotes"
    return None


def table_of(topic: str) -> sql.Identifier:
    """The table of a topic."""
    return sql.Identifier(*topic.split("."))


def state(schema: str) -> sql.Composed:
    """Statements that create the schema of state; repeated, they have no effect."""
    return sql.SQL(
        """
SELECT pg_advisory_xact_lock({lock});
CREATE SCHEMA IF NOT EXISTS {schema};
CREATE TABLE IF NOT EXISTS {schema}.topics (
    relation oid PRIMARY KEY, earliest bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS {schema}.writers (
    relation oid, writer text, instance text NOT NULL, epoch bigint,
    position text, rows bigint, sums text, committed timestamptz,
    PRIMARY KEY (relation, writer)
);
CREATE TABLE IF NOT EXISTS {schema}.slots (
    slot text PRIMARY KEY, relation oid NOT NULL, origin pg_lsn, rows bigint,
    acknowledged bigint, advanced pg_lsn, made timestamptz
);
CREATE OR REPLACE FUNCTION {schema}.removed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
DECLARE
    highest bigint;
BEGIN
    IF TG_OP = 'DELETE' THEN
        EXECUTE format('SELECT max(%I) FROM gone', TG_ARGV[0]) INTO highest;
    ELSE
        EXECUTE format('SELECT max(%I) FROM %I.%I', TG_ARGV[0], TG_TABLE_SCHEMA,
                       TG_TABLE_NAME) INTO highest;
    END IF;
    -- Rows that no reader could see yet were not lost, and others may come before them.
    UPDATE {schema}.topics SET earliest = greatest(
        earliest, least(highest + 1, {horizon}))
    WHERE relation = TG_RELID AND highest IS NOT NULL;
    RETURN NULL;
END $$;
"""
    ).format(schema=sql.Identifier(schema), lock=_LOCK, horizon=HORIZON)


def adopt(topic: str, offset: str, schema: str) -> sql.Composed:
    """Statements that make a table with a column of offsets a topic."""
    sequence = sql.Identifier(*topic.split(".")[:-1], f"{topic.split('.')[-1]}_offset")
    return sql.SQL(
        """
CREATE SEQUENCE {sequence} MINVALUE 0 MAXVALUE {last} CYCLE
    OWNED BY {table}.{offset};
ALTER TABLE {table} ALTER COLUMN {offset} SET DEFAULT
    (pg_current_xact_id()::text::bigint << {bits}) | nextval({name});
INSERT INTO {schema}.topics VALUES ({text}::regclass, least({horizon},
    (SELECT min({offset}) FROM {table})));
CREATE TRIGGER streamfactory_deleted AFTER DELETE ON {table}
    REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.removed({column});
CREATE TRIGGER streamfactory_truncated BEFORE TRUNCATE ON {table}
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.removed({column});
"""
    ).format(
        sequence=sequence,
        name=sql.Literal(sequence.as_string()),
        last=MOST_ROWS - 1,
        table=table_of(topic),
        text=sql.Literal(table_of(topic).as_string()),
        offset=sql.Identifier(offset),
        column=sql.Literal(offset),
        bits=ORDINAL_BITS,
        horizon=HORIZON,
        schema=sql.Identifier(schema),
    )


def channel(relation: int) -> str:
    """The channel on which commits of a table are notified."""
    return f"streamfactory_{relation}"


def no_topic(topic: str) -> spi.TopicNotFound:
    """The error for a table that does not exist."""
    msg = f"PostgreSQL has no table {topic!r}"
    remedy = "create it with `streamfactory topics create`"
    return spi.TopicNotFound(msg, remedy=remedy)
