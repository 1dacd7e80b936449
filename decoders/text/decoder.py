"""Decoder of text: one row per message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.decoders.columns.casting import Casting
from streamfactory.decoders.columns.inferring import fitting
from streamfactory.decoders.columns.messages import BadMessages, answer, as_texts
from streamfactory.decoders.columns.options import UNITS
from streamfactory.decoders.text.options import groups, whole_pattern
from streamfactory.spi import (
    ConfigError,
    DecodeContext,
    Decoded,
    MessageDecoder,
    Partition,
    SchemaUnknown,
)
from streamfactory.spi.arrowjson import parse_schema
from streamfactory.spi.decoder import find_lookalikes

if TYPE_CHECKING:
    from collections.abc import Mapping

_VALUE: Final = "value"


class TextDecoder(MessageDecoder):
    """Decodes to the column ``value``, or to the groups of the pattern."""

    def __init__(self, options: Mapping[str, Any], topic: str) -> None:
        super().__init__(options, topic)
        self._pattern = whole_pattern(options)
        names = [_VALUE] if self._pattern is None else groups(self._pattern)
        unit = options.get("timestamp.unit")
        self._casting = Casting(None if unit is None else UNITS[unit])
        plain = pa.schema([(name, pa.string()) for name in names])
        self._schema = plain
        if "schema" in options:
            self._schema = parse_schema(options["schema"])
        self._names = names
        missing = set(self._schema.names) - set(names)
        unknown = set(names) - set(self._schema.names)
        for found, key, what in (
            (missing, "missing.fields", "no group for column"),
            (unknown, "unknown.fields", "no column for group"),
        ):
            if found and options[key] == "error":
                msg = f"the schema and the pattern differ: {what} {min(found)!r}"
                raise ConfigError(msg)

    @classmethod
    def infer(cls, values: pa.Array, options: Mapping[str, Any]) -> pa.Schema:
        texts = {key: value for key, value in options.items() if key != "schema"}
        decoder = cls(texts, "sample")
        decoded = decoder.decode(values, DecodeContext(Partition("sample", 0)))
        if not decoded.rows.num_rows:
            msg = f"none of {len(values)} messages matches the pattern"
            raise SchemaUnknown(msg, remedy="declare the schema")
        return fitting(decoded.rows)

    def schema(self) -> pa.Schema:
        return self._schema

    def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
        findings = BadMessages(context)
        if findings.misfits.undeclared and set(self._names) - set(self._schema.names):
            findings.misfits.add_undeclared(np.arange(len(values)))
        findings.misfits.lookalikes |= find_lookalikes(self._names, self._schema.names)
        texts = as_texts(values, findings)
        found = {_VALUE: texts}
        if self._pattern is not None:
            matches = pc.extract_regex(texts, self._pattern)
            missed = np.flatnonzero(matches.is_null())
            findings.add(missed, "no_match", "the message does not match the pattern")
            found = dict(zip(self._names, matches.flatten(), strict=True))
        source = None
        if findings.errors:
            source = np.delete(np.arange(len(texts)), findings.messages)
        columns = []
        for field in self._schema:
            column = found.get(field.name, pa.nulls(len(texts), pa.string()))
            if self._pattern is not None:
                null = pc.equal(column, self.options["null.value"])
                column = pc.if_else(null, pa.scalar(None, pa.string()), column)
            columns.append(column if source is None else column.take(pa.array(source)))
        return answer(columns, self._schema, self._casting, findings, source)
