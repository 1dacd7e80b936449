"""Dead letters: the stored form of messages that could not be decoded (rule D3).

All dead letters have the same schema. `copy` and groups create them from the messages,
with `letters_of`. Where bad messages are rows (Spark, ``open()``), they are created
from the columns ``_error`` and ``_raw``, with `split_rows`, or in Spark SQL.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from streamfactory.spi import ConfigError, headers_type
from streamfactory.spi.hooks import DECODERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.spi import Decoder, StreamConfig

_ERROR_TYPE: Final = pa.struct([("code", pa.string()), ("message", pa.string())])

EVIDENCE: Final = (pa.field("_error", _ERROR_TYPE), pa.field("_raw", pa.binary()))
"""Columns of the row of a bad message; null in every other row."""

DEAD_LETTER_SCHEMA: Final = pa.schema(
    [
        pa.field("value", pa.binary()),
        pa.field("key", pa.binary()),
        pa.field("headers", headers_type()),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("ordinal", pa.int32()),
        pa.field("incarnation", pa.string()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("error_code", pa.string(), nullable=False),
        pa.field("error_message", pa.string(), nullable=False),
        pa.field("decoder", pa.string()),
        pa.field("decoder_version", pa.string()),
        pa.field("failed_at", pa.string(), nullable=False),
        pa.field("stream", pa.string(), nullable=False),
    ]
)
"""The schema of dead letters. ``ordinal`` is null if the whole message is bad, or the
number of the bad row within its message."""

IDENTITY: Final = (
    "stream",
    "topic",
    "incarnation",
    "partition",
    "offset",
    "ordinal",
)
"""The columns that identify a dead letter: letters that have them in common are one."""

_NEEDED: Final = ("_error", "_raw", "_topic", "_partition", "_offset")


@dataclass(frozen=True, slots=True)
class Bad:
    """A bad message, or a bad row of a message, with the cause."""

    index: int
    """Index of the message within one call."""
    ordinal: int | None
    """Index of the row within its message; None if the whole message is bad."""
    code: str
    what: str


@dataclass(frozen=True, slots=True)
class Origin:
    """The stream and the decoder of dead letters. Pickles."""

    stream: str
    decoder: str | None
    version: str | None
    """Version of the decoder's distribution."""

    @classmethod
    def of(cls, config: StreamConfig, decoder: Decoder | None) -> Origin:
        """Create the origin of a configured stream."""
        name = None if decoder is None else decoder.name
        return cls(config.name, name, None if name is None else _version(name))


def varying_columns(schema: pa.Schema) -> frozenset[str]:
    """Return the columns that differ when the same dead letters are created again.

    The comparison of repeated epochs ignores them (rule W3).
    """
    letters = frozenset(DEAD_LETTER_SCHEMA.names) <= frozenset(schema.names)
    return frozenset({"failed_at"}) if letters else frozenset()


def failed_now() -> str:
    """Return the current time in the form of dead letters."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def letters_of(
    envelopes: pa.RecordBatch, bad: Sequence[Bad], origin: Origin
) -> pa.RecordBatch:
    """Return the dead letters of bad messages, without incarnation.

    Args:
        envelopes: The messages of one call.
        bad: Those that could not be decoded.
        origin: Their origin.
    """
    held = envelopes.take(pa.array([one.index for one in bad], pa.int64()))
    names = ("value", "key", "headers", "topic", "partition", "offset", "timestamp")
    given = {name: held.column(name) for name in names}
    given["ordinal"] = pa.array([one.ordinal for one in bad], pa.int32())
    given["error_code"] = pa.array([one.code for one in bad], pa.string())
    given["error_message"] = pa.array([one.what for one in bad], pa.string())
    return _letters(given, len(bad), origin)


def with_incarnation(
    letters: pa.RecordBatch, incarnation: str | None
) -> pa.RecordBatch:
    """Return dead letters with an incarnation."""
    index = letters.schema.get_field_index("incarnation")
    values = pa.repeat(pa.scalar(incarnation, pa.string()), letters.num_rows)
    return letters.set_column(index, letters.schema.field(index), values)


def split_rows(
    rows: pa.RecordBatch, origin: Origin
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return the good rows without ``_error`` and ``_raw``, and the dead letters.

    Args:
        rows: With ``_error``, ``_raw`` and metadata columns.
        origin: Their origin.

    Raises:
        ConfigError: config; a column that dead letters require is missing.
    """
    check_columns(rows.schema, origin)
    error = rows.column("_error")
    kept = [name for name in rows.schema.names if name not in ("_error", "_raw")]
    good, bad = rows.select(kept), rows.filter(error.is_valid())
    if bad.num_rows:
        good = good.filter(error.is_null())
    given = {"value": bad.column("_raw")}
    given |= {
        name: bad.column(column)
        for name, column in source_columns(rows.schema).items()
        if column is not None
    }
    given["error_code"] = bad.column("_error").field("code")
    given["error_message"] = bad.column("_error").field("message")
    return good, _letters(given, bad.num_rows, origin)


def evidence_of(bad: Sequence[Bad], values: pa.Array) -> list[pa.Array]:
    """Return the columns `EVIDENCE`, for bad messages only.

    Args:
        bad: One entry per bad message.
        values: All messages of the call.
    """
    codes = pa.array([one.code for one in bad], pa.string())
    texts = pa.array([_message_of(one) for one in bad], pa.string())
    errors = pa.StructArray.from_arrays([codes, texts], fields=list(_ERROR_TYPE))
    raw = values.take(pa.array([one.index for one in bad], pa.int64()))
    return [errors, raw.cast(pa.binary())]


def _message_of(bad: Bad) -> str:
    return bad.what if bad.ordinal is None else f"row {bad.ordinal}: {bad.what}"


def _letters(given: dict[str, pa.Array], count: int, origin: Origin) -> pa.RecordBatch:
    constants = {
        "decoder": origin.decoder,
        "decoder_version": origin.version,
        "failed_at": failed_now(),
        "stream": origin.stream,
    }
    columns = [
        given[field.name].cast(field.type)
        if field.name in given
        else pa.repeat(pa.scalar(constants.get(field.name), field.type), count)
        for field in DEAD_LETTER_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=DEAD_LETTER_SCHEMA)


def source_columns(schema: pa.Schema) -> dict[str, str | None]:
    """Return the source column of each dead-letter column; None if there is none."""
    names = ("topic", "partition", "offset", "timestamp", "key", "headers")
    found: dict[str, str | None] = {}
    for name in names:
        there = f"_{name}" in schema.names
        if there and name == "key":  # a decoded key is not the original
            there = schema.field("_key").type == pa.binary()
        found[name] = f"_{name}" if there else None
    return found


def check_columns(schema: pa.Schema, origin: Origin) -> None:
    """Refuse rows without the columns that dead letters require.

    Raises:
        ConfigError: config; a column is missing.
    """
    missing = [name for name in _NEEDED if name not in schema.names]
    if missing:
        msg = f"dead letters require the column {missing[0]!r}"
        remedy = "set decode.on.error=dead-letter and metadata.columns=true, and "
        remedy += "includeHeaders=true to keep headers"
        raise ConfigError(msg, stream=origin.stream, remedy=remedy)


@cache
def _version(decoder: str) -> str | None:
    """Return the version of a decoder's distribution; None without one."""
    for entry in entry_points(group=DECODERS, name=decoder):
        if entry.dist is not None:
            return str(entry.dist.version)
    return None
