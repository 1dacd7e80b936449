"""Decodes events that are JSON, with the schema in each message or without one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.decoders.columns.messages import BadMessages, as_texts
from streamfactory.decoders.debezium.changes import Events, Images, TableRows
from streamfactory.decoders.debezium.encodings import (
    Encoding,
    by_options,
    by_schema,
    timestamp_unit,
)
from streamfactory.decoders.debezium.envelopes import (
    Envelopes,
    envelopes_of,
    present,
)
from streamfactory.decoders.debezium.times import UNITS, commit_times, utc
from streamfactory.decoders.json.decoder import JsonDecoder
from streamfactory.decoders.json.nesting import too_deep
from streamfactory.spi.arrowjson import to_arrow_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfactory.decoders.debezium.layout import Layout
    from streamfactory.spi import DecodeContext, Decoded

_MOST_SCHEMAS: Final = 1000
"""Schemas that are remembered. They change when the table does."""


class _Rows:
    """Decodes the rows of one schema."""

    def __init__(
        self, table: pa.Schema, encodings: list[Encoding], unit: str | None
    ) -> None:
        self.encodings = encodings
        fields = [
            pa.field(one.name, encoding.decoded)
            for one, encoding in zip(table, encodings, strict=True)
        ]
        self.decoder = _json(pa.schema(fields), unit)


def _json(schema: pa.Schema, unit: str | None = None) -> JsonDecoder:
    options = {
        "schema": to_arrow_json(schema),
        "unknown.fields": "ignore",
        "missing.fields": "null",
        "numbers.as.text": False,
    }
    if unit is not None:
        options["timestamp.unit"] = unit
    return JsonDecoder(options, "")


@final
class JsonEvents:
    """Decodes messages of one stream. Not thread-safe.

    Args:
        layout: Of the rows.
        options: Of the decoder.
    """

    def __init__(self, layout: Layout, options: Mapping[str, Any]) -> None:
        self.layout = layout
        self._options = options
        self._rows: dict[bytes | None, _Rows | None] = {}
        self._source_names = list(layout.source.names)
        times = [name for name in UNITS if name not in self._source_names]
        fields = [*layout.source, *(pa.field(name, pa.int64()) for name in times)]
        self._source = _json(pa.schema(fields))

    def close(self) -> None:
        """Nothing to release."""

    def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
        """Return the rows of messages (see `MessageDecoder.decode`)."""
        findings = BadMessages(context)
        texts = as_texts(values, findings)
        deep = too_deep(texts)
        findings.add(deep, "too_deep", "the message is nested too deeply")
        envelopes = envelopes_of(_without(texts, deep), findings)
        events = self._events(envelopes, context, findings)
        rows = TableRows.of(self.layout, events, findings, self._options)
        images = rows.images
        before, after = envelopes.before, envelopes.after
        states = [
            after[event] if is_after else before[event]
            for event, is_after in zip(
                images.events.tolist(), images.is_after.tolist(), strict=True
            )
        ]
        whole = pa.array(states, pa.binary())
        for schema, at in _groups(envelopes.schemas, images):
            self._add(schema, whole, at, context, rows)
        return rows.decoded()

    def _add(
        self,
        schema: bytes | None,
        states: pa.Array,
        at: np.ndarray,
        context: DecodeContext,
        rows: TableRows,
    ) -> None:
        """Decode the images of one schema."""
        findings = rows.findings
        decoder = self._of_schema(schema)
        if decoder is None:
            what = "the schema in the message is not that of a change event"
            findings.add(rows.messages_of(at), "schema", what)
            return
        given = states if len(at) == len(states) else states.take(pa.array(at))
        decoded = decoder.decoder.decode(given, replace(context, headers=None))
        for error in decoded.errors:
            image = at[error.message : error.message + 1]
            findings.add(rows.messages_of(image), error.code, error.what)
        if decoded.source is not None:
            at = at[decoded.source.to_numpy()]
        for misfit in decoded.misfits:
            odd = rows.messages_of(at[misfit.rows.to_numpy()])
            findings.misfits.add(odd, misfit.column, misfit.what)
        findings.misfits.lookalikes.update(decoded.lookalikes)
        rows.add(decoded.rows.columns, decoder.encodings, at)

    def _of_schema(self, schema: bytes | None) -> _Rows | None:
        if schema not in self._rows:
            if len(self._rows) >= _MOST_SCHEMAS:
                self._rows.clear()
            self._rows[schema] = self._made(schema)
        return self._rows[schema]

    def _made(self, schema: bytes | None) -> _Rows | None:
        table, options = self.layout.table, self._options
        if schema is None:
            found = [by_options(one.name, one.type, options) for one in table]
            return _Rows(table, found, timestamp_unit(options))
        try:
            columns = _columns_of(msgspec.json.decode(schema))
            found = [
                by_schema(columns.get(one.name, {}), one.type, options) for one in table
            ]
        except (msgspec.MsgspecError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return _Rows(table, found, None)

    def _events(
        self, found: Envelopes, context: DecodeContext, findings: BadMessages
    ) -> Events:
        messages = np.array(found.messages, np.int64)
        given = pa.array([text or b"{}" for text in found.source], pa.binary())
        decoded = self._source.decode(given, type(context)(context.partition))
        for error in decoded.errors:
            what = f"the source of the event is bad: {error.what}"
            findings.add([messages[error.message]], error.code, what)
        source = decoded.rows
        if decoded.source is not None:
            place = np.full(len(messages), -1)
            place[decoded.source.to_numpy()] = np.arange(source.num_rows)
            source = source.take(pa.array(place, mask=place < 0))
        names = self._source_names
        return Events(
            messages,
            pa.array(found.operations, pa.string()),
            present(found.before),
            present(found.after),
            utc(pa.array(found.times, pa.int64()), "ms"),
            commit_times(source.to_struct_array()),
            source.select(names).to_struct_array() if names else None,
        )


def _without(texts: pa.StringArray, which: np.ndarray) -> pa.StringArray:
    if not len(which):
        return texts
    mask = np.zeros(len(texts), bool)
    mask[which] = True
    return pc.if_else(pa.array(mask), pa.scalar(None, texts.type), texts)


def _groups(
    schemas: list[bytes | None], images: Images
) -> list[tuple[bytes | None, np.ndarray]]:
    """The schemas of the images, and the images of each."""
    numbers = {schema: number for number, schema in enumerate(dict.fromkeys(schemas))}
    of_event = np.array([numbers[schema] for schema in schemas], np.int64)
    of_image = of_event[images.events]
    return [
        (schema, np.flatnonzero(of_image == number))
        for schema, number in numbers.items()
        if (of_image == number).any()
    ]


def _columns_of(envelope: Any) -> dict[str, Any]:
    """The Connect schemas of the columns, by name, of an envelope's schema."""
    parts = {one["field"]: one for one in envelope["fields"]}
    row = parts["after"] if "after" in parts else parts["before"]
    return {one["field"]: one for one in row["fields"]}
