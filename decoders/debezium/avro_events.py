"""Decodes events that are Avro in the frame of a Schema Registry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.decoders import framing
from streamfactory.decoders.avro.decoder import references_of
from streamfactory.decoders.avro.decoding import AvroBatchDecoder
from streamfactory.decoders.avro.schemas import Node, SchemaRefused, parse
from streamfactory.decoders.columns.messages import BadMessages
from streamfactory.decoders.debezium.avro_schemas import (
    STATES,
    encodings_of,
    fit,
    row_of,
    table_of,
)
from streamfactory.decoders.debezium.changes import Events, TableRows
from streamfactory.decoders.debezium.layout import Layout
from streamfactory.decoders.debezium.times import commit_times, utc
from streamfactory.decoders.isolation import SCHEMA, DecodedParts, plain
from streamfactory.decoders.registry import Registry, UnknownId
from streamfactory.spi import SchemaUnknown
from streamfactory.spi.arrowjson import parse_schema
from streamfactory.spi.decoder import find_lookalikes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfactory.decoders.debezium.encodings import Encoding
    from streamfactory.spi import DecodeContext, Decoded

_REMEDY: Final = "declare the schema, or set schema.registry.subject to one that exists"


@dataclass(frozen=True, slots=True)
class _Writer:
    """The events of one schema of the registry."""

    decoder: AvroBatchDecoder
    encodings: list[Encoding]
    undeclared: bool
    lookalikes: set[str]


@dataclass(frozen=True, slots=True)
class _Group:
    """The decoded events of one schema."""

    writer: _Writer
    rows: pa.RecordBatch
    messages: np.ndarray


@final
class AvroEvents:
    """Decodes messages of one stream. Not thread-safe.

    Args:
        options: Of the decoder.
        topic: Source of the default subject.
    """

    def __init__(self, options: Mapping[str, Any], topic: str) -> None:
        self._options = options
        self._registry = Registry(options, topic)
        self._layout: Layout | None = None
        self._writers: dict[int, _Writer | tuple[str, str]] = {}

    @property
    def layout(self) -> Layout:
        """Of the rows: declared, or of the latest schema of the subject."""
        if self._layout is None:
            declared = self._options.get("schema")
            if declared is not None:
                self._layout = Layout.of(parse_schema(declared))
            else:
                self._layout = Layout.of(self._latest())
        return self._layout

    def _latest(self) -> pa.Schema:
        try:
            found = self._registry.latest("AVRO").schema
            return table_of(self._node(found), found.schema_str)
        except UnknownId as error:
            msg = f"the Schema Registry has no subject {self._registry.subject!r}"
            raise SchemaUnknown(msg, remedy=_REMEDY) from error
        except SchemaRefused as error:
            msg = f"the schema of subject {self._registry.subject!r} cannot be used: "
            raise SchemaUnknown(msg + str(error), remedy=_REMEDY) from error

    def _node(self, schema: Any) -> Node:
        return parse(schema.schema_str, references_of(self._registry, schema))

    def close(self) -> None:
        """Close the connections to the registry."""
        self._registry.close()

    def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
        """Return the rows of messages (see `MessageDecoder.decode`)."""
        findings, values = BadMessages(context), plain(values)

        def refuse(messages: Any, refusal: tuple[str, str]) -> None:
            findings.add(messages, *refusal)

        groups = []
        for number, framed, which in framing.by_schema(
            values, np.arange(len(values)), refuse
        ):
            writer = self._writer(number)
            if isinstance(writer, tuple):
                refuse(which, writer)
                continue
            payloads = framing.stripped(framed, framing.HEADER)
            groups.append(_group(writer, payloads, which, findings))
        events, places = self._events(groups)
        rows = TableRows.of(self.layout, events, findings, self._options)
        for group, place in zip(groups, places, strict=True):
            self._add(group, place, rows)
        return rows.decoded()

    def _writer(self, number: int) -> _Writer | tuple[str, str]:
        found = self._writers.get(number)
        if found is not None:
            return found
        try:
            schema = self._registry.by_id(number, "AVRO")
        except UnknownId:
            # Not cached: the schema may be registered later.
            why = f"the Schema Registry has no Avro schema with the id {number}"
            return "unknown_schema_id", why
        try:
            node, table = self._node(schema), self.layout.table
            columns = row_of(node).names
            made: _Writer | tuple[str, str] = _Writer(
                AvroBatchDecoder(node, node),
                encodings_of(node, schema.schema_str, table, self._options),
                not set(columns) <= set(table.names),
                find_lookalikes(columns, table.names),
            )
        except (SchemaRefused, ValueError, KeyError, TypeError) as error:
            reason = str(error) if isinstance(error, SchemaRefused) else "inconsistent"
            made = SCHEMA, f"schema {number} cannot be used: {reason}"
        self._writers[number] = made
        return made

    def _events(self, groups: list[_Group]) -> tuple[Events, list[np.ndarray]]:
        """The events of all groups, by message, and the event of each group's rows."""
        kind = self.layout.source
        parts = [_parts(group.rows, kind) for group in groups]
        messages = np.concatenate(
            [np.zeros(0, np.int64), *(group.messages for group in groups)]
        )
        order = np.argsort(messages, kind="stable")
        event = np.empty_like(order)
        event[order] = np.arange(len(order))
        ends = np.cumsum([len(group.messages) for group in groups])
        none = pa.RecordBatch.from_pydict({"op": pa.array([], pa.string())})
        blank = _parts(none, kind)
        joined = [
            pa.concat_arrays(some).take(pa.array(order))
            for some in zip(blank, *parts, strict=True)
        ]
        operations, before, after, times, changed, source = joined
        return Events(
            messages[order],
            operations,
            np.asarray(before),
            np.asarray(after),
            times,
            changed,
            source if len(kind) else None,
        ), np.split(event, ends[:-1]) if groups else []

    def _add(self, group: _Group, events: np.ndarray, rows: TableRows) -> None:
        """Add the images of a group's events."""
        writer, images, count = group.writer, rows.images, group.rows.num_rows
        if writer.undeclared:
            rows.findings.misfits.add_undeclared(group.messages)
        rows.findings.misfits.lookalikes |= writer.lookalikes
        at = np.flatnonzero(np.isin(images.events, events))
        order = np.argsort(events)
        row = order[np.searchsorted(events[order], images.events[at])]
        row = row + np.where(images.is_after[at], count, 0)
        states = pa.concat_arrays([group.rows.column(name) for name in STATES])
        states = states.take(pa.array(row))
        columns = [
            pc.struct_field(states, one.name)
            if one.name in states.type.names
            else pa.nulls(len(at), one.type)
            for one in self.layout.table
        ]
        rows.add(columns, writer.encodings, at)


def _group(
    writer: _Writer, payloads: pa.Array, which: np.ndarray, findings: BadMessages
) -> _Group:
    result = DecodedParts(writer.decoder.schema)
    writer.decoder.run(payloads, np.arange(len(payloads)), result)
    decoded = result.decoded(len(payloads))
    for error in decoded.errors:
        findings.add([which[error.message]], error.code, error.what)
    kept = which if decoded.source is None else which[decoded.source.to_numpy()]
    return _Group(writer, decoded.rows, kept)


def _parts(rows: pa.RecordBatch, source: pa.Schema) -> tuple[pa.Array, ...]:
    """Operation, whether there are states, times and source of each event."""
    count, names = rows.num_rows, rows.schema.names

    def column(name: str, kind: pa.DataType) -> pa.Array:
        if name not in names:
            return pa.nulls(count, kind)
        return rows.column(name)

    def there(name: str) -> pa.Array:
        if name not in names:
            return pa.repeat(pa.scalar(value=False), count)
        return rows.column(name).is_valid()

    found = column("source", pa.struct([]))
    return (
        column("op", pa.string()).cast(pa.string()),
        *map(there, STATES),
        utc(column("ts_ms", pa.int64()), "ms"),
        commit_times(found),
        fit(found, pa.struct(list(source))) if len(source) else pa.nulls(count),
    )
