"""The encoder of ``cloudevents``."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.decoders.cloudevents.attributes import (
    CONTENT,
    CONTENT_HEADER,
    JSON,
    PREFIX,
    REQUIRED,
    STRUCTURED,
    VERSION,
)
from streamfactory.decoders.columns.rendering import rendered
from streamfactory.decoders.json.encoder import JsonEncoder
from streamfactory.spi import MessageEncoder, SchemaMismatch, headers_type

_NAME: Final = re.compile(r"[a-z0-9]+")
_JSON_CONTENT: Final = "application/json"
_ENVELOPE_CONTENT: Final = f"{STRUCTURED}+json; charset=UTF-8"
_BINARY: Final = (pa.types.is_binary, pa.types.is_large_binary)


class CloudEventsEncoder(MessageEncoder):
    """Encodes each row as one event, in the mode of the option ``mode``."""

    def encode(self, rows: pa.RecordBatch) -> pa.Array:
        event = _Event(rows)
        json = JsonEncoder({}, self.topic)
        if self.options["mode"] == "structured":
            return json.encode(event.envelope())
        if event.raw is not None:
            if event.raw.null_count:
                msg = "the column 'data' has nulls, and an event without data is a "
                msg += "message without a value"
                remedy = "set decoder.prop.mode to structured"
                raise SchemaMismatch(msg, remedy=remedy)
            return event.raw
        return json.encode(event.data)

    def encode_headers(self, rows: pa.RecordBatch) -> pa.Array:
        count = rows.num_rows
        if self.options["mode"] == "structured":
            content = pa.repeat(pa.scalar(_ENVELOPE_CONTENT), count)
            return _headers({CONTENT_HEADER: content}, count)
        texts = _Event(rows).attributes
        named = {
            CONTENT_HEADER if name == CONTENT else PREFIX + name: text
            for name, text in texts.items()
        }
        return _headers(named, count)


class _Event:
    """The parts of events.

    Args:
        rows: Columns of data, and those of attributes.

    Raises:
        SchemaMismatch: permanent; a row is no event.
    """

    def __init__(self, rows: pa.RecordBatch) -> None:
        names = rows.schema.names
        self._columns = {
            name.removeprefix(PREFIX): rows.column(name)
            for name in names
            if name.startswith(PREFIX)
        }
        self.data = rows.select([one for one in names if not one.startswith(PREFIX)])
        """Columns of the data."""
        self.raw: pa.BinaryArray | None = None
        """The data, if it is given as bytes in the only column ``data``."""
        if self.data.schema.names == ["data"]:
            kind = self.data.schema.field("data").type
            if any(is_one(kind) for is_one in _BINARY):
                self.raw = self.data.column("data").cast(pa.binary())
        self.attributes = {
            name: rendered(column, PREFIX + name)
            for name, column in self._columns.items()
        }
        """The text of each attribute; null where an event does not have it."""
        self._check()
        for name, text in (
            (VERSION, "1.0"),
            *(() if self.raw is not None else ((CONTENT, _JSON_CONTENT),)),
        ):
            given = self.attributes.get(name, pa.nulls(rows.num_rows, pa.string()))
            self.attributes[name] = pc.fill_null(given, text)

    def envelope(self) -> pa.RecordBatch:
        """The members of structured events."""
        members: dict[str, pa.Array] = {}
        for name, text in self.attributes.items():
            column = self._columns.get(name, text)
            kind = column.type
            bare = pa.types.is_boolean(kind) or pa.types.is_integer(kind)
            members[name] = column if bare else text
        if self.raw is not None:
            members["data_base64"] = self.raw
        else:
            members["data"] = self.data.to_struct_array()
        return pa.RecordBatch.from_pydict(members)

    def _check(self) -> None:
        for name in REQUIRED:
            text = self.attributes.get(name)
            if text is None or text.null_count or pc.any(pc.equal(text, "")).as_py():
                msg = f"an event has no attribute {name!r}"
                remedy = f"write the column {PREFIX}{name} without nulls"
                raise SchemaMismatch(msg, remedy=remedy)
        for name in self.attributes:
            if _NAME.fullmatch(name) is None or name in ("data", "data_base64"):
                msg = f"column {PREFIX + name!r} is no attribute: names of attributes "
                msg += "have lower-case letters and digits only"
                raise SchemaMismatch(msg)
        version = self.attributes.get(VERSION)
        if version is not None and pc.any(pc.not_equal(version, "1.0")).as_py():
            msg = f"column {PREFIX + VERSION!r} has another version than 1.0"
            raise SchemaMismatch(msg)
        content = self.attributes.get(CONTENT)
        if content is None or self.raw is not None:
            return
        if pc.any(pc.invert(pc.match_substring_regex(content, JSON))).as_py():
            msg = f"column {PREFIX + CONTENT!r} has a type that is not JSON"
            raise SchemaMismatch(msg, remedy="write the data as the column data binary")


def _headers(texts: dict[str, pa.StringArray], count: int) -> pa.Array:
    """Headers of messages: one for each text that is not null."""
    width = len(texts)
    rows = np.arange(count * width) // width
    columns = np.arange(count * width) % width
    values = pa.concat_arrays(list(texts.values())).take(
        pa.array(columns * count + rows)
    )
    kept = np.asarray(values.is_valid())
    sizes = np.bincount(rows[kept], minlength=count)
    names = pa.array(list(texts)).take(pa.array(columns[kept]))
    pairs = pa.StructArray.from_arrays(
        [names, values.filter(pa.array(kept)).cast(pa.binary())],
        fields=list(headers_type().value_type),
    )
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32())
    return pa.ListArray.from_arrays(offsets, pairs, type=headers_type())
