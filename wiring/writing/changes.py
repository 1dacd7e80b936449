"""Rows of changes written as messages of their keys: upserts, and tombstones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.spi import ConfigError, SchemaMismatch, envelope_schema
from streamfactory.spi.ddl import type_text
from streamfactory.spi.producer import TOMBSTONE
from streamfactory.wiring.writing.routing import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from streamfactory.spi import StreamConfig
    from streamfactory.wiring.writing.routing import Parcel, Router

OPTION: Final = "producer.change.column"
INSERT: Final = "insert"
UPDATE_BEFORE: Final = "update_before"
UPDATE_AFTER: Final = "update_after"
DELETE: Final = "delete"
_KINDS: Final = (INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE)


def change_column(config: StreamConfig) -> str | None:
    """The column with the kind of each change; None if rows are not changes."""
    found: str | None = config.get(OPTION)
    return found


def check_changes(
    config: StreamConfig,
    rows: pa.Schema,
    wanted: pa.Schema | None,
    carries: Collection[str],
) -> None:
    """Refuse rows that cannot be written as changes.

    Args:
        config: Of the sink, with a change column.
        rows: Schema of the rows.
        wanted: Schema that the sink stores; None if the first rows decide it.
        carries: The framework's columns that the sink stores.

    Raises:
        ConfigError: config; the sink stores no messages with keys, or no key is given.
        SchemaMismatch: permanent; the rows have no such column.
    """
    name = change_column(config)
    stores_messages = wanted is not None and wanted.equals(envelope_schema())
    if not stores_messages or "_key" not in carries:
        msg = f"{OPTION} requires a stream of messages with keys, and this stream "
        msg += "stores rows, which keep the column as it is"
        raise ConfigError(msg, stream=config.name, remedy=f"remove {OPTION}")
    if "_key" not in rows.names and not config.get("producer.key.columns"):
        msg = f"{OPTION} requires the key of each row"
        remedy = "set producer.key.columns, or write a column _key"
        raise ConfigError(msg, stream=config.name, remedy=remedy)
    if name not in rows.names:
        msg = f"the rows have no column {name!r}, which {OPTION} names"
        raise SchemaMismatch(msg, stream=config.name)


def apply_changes(
    parcel: Parcel, column: str, router: Router
) -> tuple[Parcel, pa.Array]:
    """Rows without before-images and without the change column, and which are deleted.

    The key of each row becomes its ``_key``. A tombstone without a kind is a deletion:
    change events of databases are followed by one, which compaction may keep alone.

    Raises:
        SchemaMismatch: permanent; a kind is unknown or null, or a key is null.
    """
    kinds = _kinds_of(parcel.rows, column, parcel.special.get(TOMBSTONE))
    kept = pc.not_equal(kinds, UPDATE_BEFORE)
    if not pc.all(kept).as_py():
        kinds, parcel = kinds.filter(kept), parcel.filter(kept)
    key = router.key_of(parcel)
    if key is None or key.null_count:
        missing = parcel.rows.num_rows if key is None else key.null_count
        msg = f"{missing} changes have no key"
        remedy = "set producer.key.columns to columns without nulls, or fill _key"
        raise SchemaMismatch(msg, remedy=remedy)
    names = [name for name in parcel.rows.schema.names if name != column]
    rows, special = parcel.rows.select(names), {**parcel.special, "_key": plain(key)}
    return parcel._replace(rows=rows, special=special), pc.equal(kinds, DELETE)


def tombstones_of(parcel: Parcel, stored: pa.Schema) -> pa.Array | None:
    """Which rows are tombstones by the framework's column; None if no row is.

    Args:
        parcel: The rows.
        stored: Schema that the sink stores.

    Raises:
        SchemaMismatch: permanent; the sink stores rows, not messages.
    """
    found = parcel.special.get(TOMBSTONE)
    if found is None or not pc.any(found).as_py():
        return None
    if stored.names == ["value"]:
        return pc.fill_null(found, pa.scalar(value=False))
    msg = f"{pc.sum(found)} rows are tombstones (column {TOMBSTONE}), and the sink "
    msg += "stores rows, which always have a value"
    raise SchemaMismatch(msg, remedy=f"filter these rows, or drop {TOMBSTONE}")


def without_values(
    rows: pa.RecordBatch,
    deleted: pa.Array,
    encode: Callable[[pa.RecordBatch], pa.RecordBatch],
) -> pa.RecordBatch:
    """Messages of rows, of which some are tombstones.

    Their columns are null, which encoders may refuse: they are not encoded.

    Args:
        rows: The rows.
        deleted: Which of them are tombstones; without nulls.
        encode: Returns messages of rows: the column ``value``.
    """
    alive = pc.invert(deleted)
    messages = encode(rows.filter(alive))
    place = pc.subtract(pc.cumulative_sum(alive.cast(pa.int64())), 1)
    return messages.take(pc.if_else(alive, place, pa.scalar(None, pa.int64())))


def _kinds_of(
    rows: pa.RecordBatch, column: str, tombstones: pa.Array | None
) -> pa.Array:
    index = rows.schema.get_field_index(column)
    if index < 0:
        msg = f"the rows have no column {column!r}, which {OPTION} names"
        raise SchemaMismatch(msg)
    kinds = rows.column(index)
    if pa.types.is_dictionary(kinds.type):
        kinds = kinds.dictionary_decode()
    if not pa.types.is_string(kinds.type) and not pa.types.is_large_string(kinds.type):
        msg = f"column {column!r} is {type_text(kinds.type)}, kinds of changes are text"
        raise SchemaMismatch(msg, remedy="cast it to string")
    if tombstones is not None and kinds.null_count:
        kinds = pc.if_else(pc.and_(kinds.is_null(), tombstones), DELETE, kinds)
    known = pc.is_in(kinds, value_set=pa.array(_KINDS, kinds.type))
    if not pc.all(known).as_py():
        other = kinds.filter(pc.invert(known))[0].as_py()
        msg = f"column {column!r} has {other!r}, which is no kind of change"
        remedy = f"kinds are {', '.join(_KINDS)}"
        raise SchemaMismatch(msg, remedy=remedy)
    return kinds
