"""The decoder of ``cloudevents``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.decoders.cloudevents.attributes import (
    CONTENT,
    JSON,
    PREFIX,
    REQUIRED,
    STRUCTURED,
    VERSION,
    Envelopes,
    Headers,
)
from streamfactory.decoders.columns.casting import Casting
from streamfactory.decoders.columns.messages import BadMessages, as_texts
from streamfactory.decoders.columns.misfits import without
from streamfactory.decoders.json.decoder import JsonDecoder
from streamfactory.decoders.json.nesting import too_deep
from streamfactory.spi import DecodeContext, Decoded, MessageDecoder
from streamfactory.spi.arrowjson import parse_schema, to_arrow_json

if TYPE_CHECKING:
    from collections.abc import Mapping

_DATA: Final = pa.field("data", pa.binary())
_DEFAULT: Final = (
    pa.field("ce_id", pa.string(), nullable=False),
    pa.field("ce_source", pa.string(), nullable=False),
    pa.field("ce_type", pa.string(), nullable=False),
    pa.field("ce_time", pa.timestamp("us", tz="UTC")),
    pa.field("ce_subject", pa.string()),
)


class CloudEventsDecoder(MessageDecoder):
    """Decodes events to one row each: columns of their data, and their attributes."""

    MESSAGE_BY_MESSAGE = True

    def __init__(self, options: Mapping[str, Any], topic: str) -> None:
        super().__init__(options, topic)
        declared = options.get("schema")
        fields = [_DATA] if declared is None else list(parse_schema(declared))
        if not any(one.name.startswith(PREFIX) for one in fields):
            fields += _DEFAULT
        self._schema = pa.schema(fields)
        data = [one for one in fields if not one.name.startswith(PREFIX)]
        self._raw = [(one.name, one.type) for one in data] == [("data", pa.binary())]
        self._json: JsonDecoder | None = None
        if data and not self._raw:
            text = to_arrow_json(pa.schema(data))
            self._json = JsonDecoder({**_json_options(options), "schema": text}, topic)
        self._casting = Casting()

    def schema(self) -> pa.Schema:
        return self._schema

    def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
        findings = BadMessages(context)
        values = values.cast(pa.binary())
        events = _Events(values, context.headers, findings)
        columns = {
            name: self._attribute(events, self._schema.field(name), findings)
            for name in self._schema.names
            if name.startswith(PREFIX)
        }
        events.check(findings)
        if self._json is not None:
            events.check_content(findings)
        kept = np.setdiff1d(np.arange(len(values)), findings.messages)
        data: dict[str, pa.Array] = {}
        if self._raw:
            data = {"data": events.data.take(pa.array(kept))}
        if self._json is not None:
            decoded, kept = self._decoded(self._json, events, kept, context, findings)
            data = dict(zip(decoded.schema.names, decoded.columns, strict=True))
        at = pa.array(kept)
        arrays = [
            columns[name].take(at) if name in columns else data[name]
            for name in self._schema.names
        ]
        rows = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        source = pa.array(kept, pa.int32())
        misfits = findings.misfits.reported(kept)
        lookalikes = sorted(findings.misfits.lookalikes)
        return Decoded(rows, source, findings.errors, misfits, lookalikes)

    def _decoded(
        self,
        decoder: JsonDecoder,
        events: _Events,
        kept: np.ndarray,
        context: DecodeContext,
        findings: BadMessages,
    ) -> tuple[pa.RecordBatch, np.ndarray]:
        """Decode the data of some messages; returns the message of each row, too."""
        data = events.data.take(pa.array(kept))
        data = pc.fill_null(data, pa.scalar(b"{}", pa.binary()))
        decoded = decoder.decode(data, replace(context, headers=None))
        for error in decoded.errors:
            findings.add([kept[error.message]], error.code, error.what)
        if decoded.source is not None:
            kept = kept[decoded.source.to_numpy()]
        for misfit in decoded.misfits:
            odd = kept[misfit.rows.to_numpy()]
            findings.misfits.add(odd, misfit.column, misfit.what)
        findings.misfits.lookalikes.update(decoded.lookalikes)
        return decoded.rows, kept

    def _attribute(
        self, events: _Events, field: pa.Field, findings: BadMessages
    ) -> pa.Array:
        texts = events.attribute(field.name.removeprefix(PREFIX), findings)
        column, faults = self._casting.cast(texts, field)
        for fault in faults:
            if findings.misfits.salvage:
                column = without(column, fault.rows)
                findings.misfits.add(fault.rows, field.name, fault.what)
            else:
                findings.add(fault.rows, fault.code, fault.what)
        return column


def _json_options(options: Mapping[str, Any]) -> dict[str, Any]:
    return {"numbers.as.text": False, **options}


class _Events:
    """The events of a batch: binary ones by their headers, others by envelopes."""

    def __init__(
        self, values: pa.Array, headers: pa.Array | None, findings: BadMessages
    ) -> None:
        self._headers = Headers(headers, len(values))
        content = self._headers.attribute(CONTENT)
        binary = self._headers.attribute(VERSION).is_valid()
        other = pc.starts_with(content, STRUCTURED)
        wrong = pc.and_(other, pc.invert(pc.match_substring_regex(content, JSON)))
        wrong = pc.or_(wrong, pc.starts_with(content, f"{STRUCTURED}-batch"))
        what = "the event is neither binary nor application/cloudevents+json"
        findings.add(np.flatnonzero(wrong.fill_null(False)), "content_type", what)
        envelopes = pc.if_else(binary, pa.scalar(None, pa.binary()), values)
        texts = as_texts(envelopes, findings)
        deep = too_deep(texts)
        findings.add(deep, "too_deep", "the message is nested too deeply")
        opened = pc.is_in(pa.array(np.arange(len(values))), value_set=pa.array(deep))
        texts = pc.if_else(opened, pa.scalar(None, pa.string()), texts)
        self._envelopes = Envelopes(texts, findings)
        self._binary = binary
        inside = pa.array(self._envelopes.data, pa.binary())
        self.data = pc.if_else(binary, values, inside)
        """Data of each event, encoded."""

    def attribute(self, name: str, findings: BadMessages) -> pa.StringArray:
        """An attribute of each event."""
        inside = self._envelopes.attribute(name, findings)
        return pc.if_else(self._binary, self._headers.attribute(name), inside)

    def check(self, findings: BadMessages) -> None:
        """Report events of another version, and those that lack an attribute."""
        version = self.attribute(VERSION, findings)
        other = pc.invert(pc.starts_with(version, "1.")).fill_null(True)
        what = "the message is no event of CloudEvents 1"
        findings.add(np.flatnonzero(other), "version", what)
        for name in REQUIRED:
            missing = np.flatnonzero(self.attribute(name, findings).is_null())
            what = f"the event lacks the attribute {name!r}"
            findings.add(missing, "schema", what)

    def check_content(self, findings: BadMessages) -> None:
        """Report events whose data is not JSON."""
        content = self.attribute(CONTENT, findings)
        other = pc.invert(pc.match_substring_regex(content, JSON)).fill_null(False)
        what = "the data of the event is not JSON: read it with the column data binary"
        findings.add(np.flatnonzero(other), "content_type", what)
