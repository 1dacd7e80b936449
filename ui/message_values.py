"""Messages as values and texts of pages; nothing here connects to a stream."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streamfactory.engines.search.browsing import times_of
from streamfactory.engines.search.columns import hidden, octets_text, searchable
from streamfactory.spi import envelope_schema
from streamfactory.spi.masking import mask_userinfo
from streamfactory.ui.cells import MOST_COLUMNS, cell_rows
from streamfactory.wiring.core.values import plain_values

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streamfactory.engines.search.browsing import Message
    from streamfactory.wiring.reading.source import Source

    Document = dict[str, Any]

MOST_VALUE: Final = 256 << 10
"""Characters of one value on the page of a message."""
_ROWS: Final = 20
"""Rows of one message that a page shows."""
_OWN: Final = frozenset(envelope_schema().names) - {"key", "value", "headers"}
"""Columns of undecoded messages that a page shows apart."""


def shown_columns(source: Source) -> list[str]:
    """The columns of a table of messages: those of rows, or value and headers."""
    names = source.schema.names
    if source.source_schema.equals(envelope_schema()) and not source.decodes:
        return [name for name in names if name not in _OWN and name != "key"]
    metadata = source.metadata_columns
    return [name for name in names if name not in metadata]


def message_document(one: Message, names: Sequence[str]) -> Document:
    """One message of a table, unmasked."""
    rows = one.rows.slice(0, _ROWS)
    return {
        "topic": one.partition.topic,
        "partition": one.partition.id,
        "offset": one.offset,
        "time": _time(rows),
        "key": _key(rows),
        "rows": cell_rows(rows, names),
        "more": one.rows.num_rows - rows.num_rows,
    }


def _time(rows: pa.RecordBatch) -> str:
    times = times_of(rows)
    if times is None:
        return ""
    return plain_values(times.slice(0, 1), octets_text)[0] or ""


def _key(rows: pa.RecordBatch) -> str | None:
    names = rows.schema.names
    # `key` is a metadata column of undecoded messages only.
    name = "key" if "timestampType" in names else "_key"
    return cell_rows(rows.slice(0, 1), [name])[0][0] if name in names else None


def fields_of(rows: pa.RecordBatch, names: Sequence[str]) -> list[list[list[str]]]:
    """The values of some rows, each with its name."""
    return [
        [[name, whole_text(rows.column(name), at)] for name in names[:MOST_COLUMNS]]
        for at in range(min(rows.num_rows, _ROWS))
    ]


def whole_text(values: pa.Array, at: int) -> str:
    """A whole value as text, within a bound."""
    part = values.slice(at, 1)
    if part.nbytes > 4 * MOST_VALUE:
        return _beginning(part)
    value = plain_values(part, octets_text)[0]
    if value is None:
        return "null"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if len(text) > MOST_VALUE:
        return f"{text[:MOST_VALUE]} … ({len(text):,} characters)"
    return text


def _beginning(part: pa.Array) -> str:
    """The beginning of a value that is too large to be converted."""
    scalar = part[0]
    if isinstance(scalar, pa.BinaryScalar | pa.LargeBinaryScalar | pa.StringScalar):
        buffer = scalar.as_buffer()
        begin = buffer.slice(0, min(buffer.size, MOST_VALUE)).to_pybytes()
        return f"{begin.decode(errors='backslashreplace')} … ({buffer.size:,} bytes)"
    return f"<{part.type}, {part.nbytes:,} bytes: too large for a page>"


def offsets_text(position: Any) -> str:
    """A position as a client gives it back."""
    return json.dumps(json.loads(position.to_json())["offsets"], separators=(",", ":"))


def mask_of(source: Source) -> Callable[[str], str]:
    """Masks what is secret in a text of a stream."""
    return lambda text: mask_userinfo(source.config.mask(text))


def hidden_rows(
    batches: Sequence[pa.RecordBatch], schema: pa.Schema, mask: Callable[[str], str]
) -> pa.RecordBatch:
    """Rows as a search sees them."""
    rows = (
        pa.concat_batches(batches)
        if batches
        else pa.RecordBatch.from_pylist([], schema)
    )
    columns = [hidden(one, searchable(one), mask) for one in rows.columns]
    return pa.RecordBatch.from_arrays(columns, schema.names)
