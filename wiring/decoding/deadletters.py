"""Dead letters: what is kept of a message that could not be decoded (rule D3).

Their schema is the same wherever they are made. Where ranges are committed here
(`copy`, groups) they are made from the messages themselves, by `letters_of`; where bad
messages leave as rows (Spark, ``open()``), from the columns ``_error`` and ``_raw`` of
these rows: by `split_rows`, or by `letter_expressions` in Spark's own language.
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
"""What a bad message's row has beside its metadata; null in every other row."""

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
"""Of every stream of dead letters. ``ordinal`` is null where the whole message is bad,
and the number of its row where only that one is."""

_NEEDED: Final = ("_error", "_raw", "_topic", "_partition", "_offset")
_SPARK_NOW: Final = (
    "date_format(to_utc_timestamp(current_timestamp(), current_timezone()), "
    "\"yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'\")"
)
_SPARK_TYPES: Final = {
    "key": "binary",
    "headers": "array<struct<key:string,value:binary>>",
    "timestamp": "timestamp",
    "ordinal": "int",
    "incarnation": "string",
}


@dataclass(frozen=True, slots=True)
class Bad:
    """What is wrong with a message, or with one of its rows."""

    index: int
    """Of the message among those of one call."""
    ordinal: int | None
    """Of the row within its message; None where all of the message is bad."""
    code: str
    what: str


@dataclass(frozen=True, slots=True)
class Origin:
    """Which stream letters come from, and what could not decode them. Pickles."""

    stream: str
    decoder: str | None
    version: str | None
    """Of the distribution that the decoder comes from."""

    @classmethod
    def of(cls, config: StreamConfig, decoder: Decoder | None) -> Origin:
        """Of a stream as it is configured."""
        name = None if decoder is None else decoder.name
        return cls(config.name, name, None if name is None else _version(name))


def varying_columns(schema: pa.Schema) -> frozenset[str]:
    """Columns that change when the same letters are made once more.

    They are no content by which a repeated epoch is recognised (rule W3).
    """
    letters = frozenset(DEAD_LETTER_SCHEMA.names) <= frozenset(schema.names)
    return frozenset({"failed_at"}) if letters else frozenset()


def failed_now() -> str:
    """The time of a failure, as letters have it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def letters_of(
    envelopes: pa.RecordBatch, bad: Sequence[Bad], origin: Origin
) -> pa.RecordBatch:
    """The letters of bad messages; nobody has said their incarnation yet.

    Args:
        envelopes: The messages of one call.
        bad: Those that could not be decoded.
        origin: Of all of them.
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
    """Letters that say what their offsets count."""
    index = letters.schema.get_field_index("incarnation")
    said = pa.repeat(pa.scalar(incarnation, pa.string()), letters.num_rows)
    return letters.set_column(index, letters.schema.field(index), said)


def split_rows(
    rows: pa.RecordBatch, origin: Origin
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Good rows without ``_error`` and ``_raw``, and the letters of the others.

    Args:
        rows: With ``_error``, ``_raw`` and metadata columns.
        origin: Of all of them.

    Raises:
        ConfigError: config; a column that letters need is not there.
    """
    _check_columns(rows.schema, origin)
    error = rows.column("_error")
    kept = [name for name in rows.schema.names if name not in ("_error", "_raw")]
    good, bad = rows.select(kept), rows.filter(error.is_valid())
    if bad.num_rows:
        good = good.filter(error.is_null())
    given = {"value": bad.column("_raw")}
    given |= {
        name: bad.column(column)
        for name, column in _sources(rows.schema).items()
        if column is not None
    }
    given["error_code"] = bad.column("_error").field("code")
    given["error_message"] = bad.column("_error").field("message")
    return good, _letters(given, bad.num_rows, origin)


def letter_expressions(schema: pa.Schema, origin: Origin) -> list[str]:
    """The columns of a letter as Spark SQL, for ``frame.selectExpr``.

    They are for rows whose ``_error`` is not null. Spark does not say the incarnation
    of a row, and no ordinal: both are null.

    Args:
        schema: Of the stream as it is read, with metadata columns.
        origin: Of all rows.

    Raises:
        ConfigError: config; a column that letters need is not there.
    """
    _check_columns(schema, origin)
    written = {name: column for name, column in _sources(schema).items() if column}
    written |= {
        "value": "_raw",
        "error_code": "_error.code",
        "error_message": "_error.message",
        "decoder": _literal(origin.decoder),
        "decoder_version": _literal(origin.version),
        "failed_at": _SPARK_NOW,
        "stream": _literal(origin.stream),
    }
    return [
        f"{written.get(name) or f'CAST(NULL AS {_SPARK_TYPES[name]})'} AS `{name}`"
        for name in DEAD_LETTER_SCHEMA.names
    ]


def evidence_of(bad: Sequence[Bad], values: pa.Array) -> list[pa.Array]:
    """The columns `EVIDENCE`, of bad messages alone.

    Args:
        bad: One entry each.
        values: Of all messages of the call.
    """
    codes = pa.array([one.code for one in bad], pa.string())
    texts = pa.array([_told(one) for one in bad], pa.string())
    errors = pa.StructArray.from_arrays([codes, texts], fields=list(_ERROR_TYPE))
    raw = values.take(pa.array([one.index for one in bad], pa.int64()))
    return [errors, raw.cast(pa.binary())]


def _told(bad: Bad) -> str:
    return bad.what if bad.ordinal is None else f"row {bad.ordinal}: {bad.what}"


def _letters(given: dict[str, pa.Array], count: int, origin: Origin) -> pa.RecordBatch:
    said = {
        "decoder": origin.decoder,
        "decoder_version": origin.version,
        "failed_at": failed_now(),
        "stream": origin.stream,
    }
    columns = [
        given[field.name].cast(field.type)
        if field.name in given
        else pa.repeat(pa.scalar(said.get(field.name), field.type), count)
        for field in DEAD_LETTER_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=DEAD_LETTER_SCHEMA)


def _sources(schema: pa.Schema) -> dict[str, str | None]:
    """Which column of a row each column of a letter is; None where there is none."""
    names = ("topic", "partition", "offset", "timestamp", "key", "headers")
    found: dict[str, str | None] = {}
    for name in names:
        there = f"_{name}" in schema.names
        if there and name == "key":  # a decoded key is not what was sent
            there = schema.field("_key").type == pa.binary()
        found[name] = f"_{name}" if there else None
    return found


def _check_columns(schema: pa.Schema, origin: Origin) -> None:
    missing = [name for name in _NEEDED if name not in schema.names]
    if missing:
        msg = f"dead letters need the column {missing[0]!r}"
        remedy = "set decode.on.error=dead-letter and metadata.columns=true, and "
        remedy += "includeHeaders=true to keep headers"
        raise ConfigError(msg, stream=origin.stream, remedy=remedy)


def _literal(text: str | None) -> str:
    if text is None:
        return "CAST(NULL AS string)"
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


@cache
def _version(decoder: str) -> str | None:
    """Of the distribution behind a decoder's entry point; None without one."""
    for entry in entry_points(group=DECODERS, name=decoder):
        if entry.dist is not None:
            return str(entry.dist.version)
    return None
