"""Upserts and deletes: the last change of each key decides."""

from __future__ import annotations

from psycopg import sql
from streamfactory import spi

from streamfactory_postgres import columns, layout
from streamfactory_postgres.connection import Connection
from streamfactory_postgres.loading import ORDINAL

_REMOVES = ("delete", "update_before")
_KNOWN = ("insert", "update_after", *_REMOVES)


def merge(
    connection: Connection, config: spi.StreamConfig, source: sql.Composable, rows: int
) -> None:
    """Apply copied rows to the table, by its key columns.

    Args:
        connection: In the transaction of the epoch.
        config: Of the stream.
        source: The table of the copied rows.
        rows: How many it has to have.

    Raises:
        spi.CorruptData: data_loss; copied rows are missing.
        spi.SchemaMismatch: permanent; a key is null, or a change is of no known kind.
    """
    keys: list[str] = list(config["key.columns"])
    change: str | None = config.get("change.column")
    _check(connection, source, rows, keys, change)
    names = columns.describe(connection, config.topic, config.get("columns")).writable(
        config["offset.column"]
    )
    kind = sql.SQL("NULL::text") if change is None else sql.Identifier(change)
    last = sql.SQL(
        "SELECT DISTINCT ON ({keys}) *, {kind} IN ({removes}) AS _removes "
        "FROM {source} ORDER BY {keys}, {ordinal} DESC"
    ).format(
        keys=_joined(keys),
        kind=kind,
        removes=sql.SQL(", ").join(_REMOVES),
        source=source,
        ordinal=sql.Identifier(ORDINAL),
    )
    table = layout.table_of(config.topic)
    if change is not None:
        same = [sql.SQL("t.{0} = l.{0}").format(sql.Identifier(key)) for key in keys]
        connection.execute(
            sql.SQL("DELETE FROM {} t USING ({}) l WHERE l._removes AND {}").format(
                table, last, sql.SQL(" AND ").join(same)
            )
        )
    others = [name for name in names.names if name not in keys and name != change]
    columns_of = _joined([*keys, *others])
    sets = [sql.SQL("{0} = excluded.{0}").format(sql.Identifier(n)) for n in others]
    action = sql.SQL("UPDATE SET {}").format(sql.SQL(", ").join(sets))
    connection.execute(
        sql.SQL(
            "INSERT INTO {} ({}) SELECT {} FROM ({}) l WHERE _removes IS NOT TRUE "
            "ON CONFLICT ({}) DO {}"
        ).format(
            table,
            columns_of,
            columns_of,
            last,
            _joined(keys),
            action if others else sql.SQL("NOTHING"),
        )
    )


def _check(
    connection: Connection,
    source: sql.Composable,
    rows: int,
    keys: list[str],
    change: str | None,
) -> None:
    kind = sql.SQL("NULL::text") if change is None else sql.Identifier(change)
    found = connection.execute(
        sql.SQL(
            "SELECT count(*), count(*) FILTER (WHERE num_nulls({}) > 0), "
            "min({}) FILTER (WHERE {} NOT IN ({})) FROM {}"
        ).format(_joined(keys), kind, kind, sql.SQL(", ").join(_KNOWN), source)
    ).fetchone()
    assert found is not None
    held, nulls, unknown = found
    if held != rows:
        msg = f"{rows - held} of {rows} staged rows are not in PostgreSQL any more"
        raise spi.CorruptData(msg, remedy="repeat the epoch with its rows")
    if nulls:
        msg = f"{nulls} rows have null in a key column ({', '.join(keys)})"
        raise spi.SchemaMismatch(msg)
    if unknown is not None:
        msg = f"column {change!r} has {unknown!r}, which is none of {', '.join(_KNOWN)}"
        raise spi.SchemaMismatch(msg)


def _joined(names: list[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, names))
