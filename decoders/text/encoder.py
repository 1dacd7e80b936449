"""Encoder of text: by a template, or of a single column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.decoders.columns.buffers import glued
from streamfactory.decoders.columns.rendering import rendered
from streamfactory.decoders.text.options import groups, places, whole_pattern
from streamfactory.spi import MessageEncoder, SchemaMismatch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class TextEncoder(MessageEncoder):
    """Encodes each row as one text."""

    def __init__(self, options: Mapping[str, Any], topic: str) -> None:
        super().__init__(options, topic)
        template = options.get("template")
        self._parts = None if template is None else places(template)
        self._pattern = whole_pattern(options)
        self._names = [] if self._pattern is None else groups(self._pattern)

    def encode(self, rows: pa.RecordBatch) -> pa.Array:
        if self._parts is None:
            return _alone(rows).cast(pa.binary())
        texts = self._texts(rows, self._parts[1::2])
        parts = [
            texts[part] if index % 2 else part for index, part in enumerate(self._parts)
        ]
        encoded = glued(*parts)
        self._check(texts, encoded)
        return encoded.cast(pa.binary())

    def _texts(
        self, rows: pa.RecordBatch, names: Sequence[str]
    ) -> dict[str, pa.StringArray]:
        for unused in set(rows.schema.names).symmetric_difference(names):
            msg = f"column {unused!r} is not in both the rows and the template"
            raise SchemaMismatch(msg, remedy="change decoder.prop.template")
        null, texts = self.options["null.value"], {}
        for name in rows.schema.names:
            found = rendered(rows.column(name), name)
            if pc.any(pc.equal(found, null)).as_py():
                msg = f"column {name!r} contains {null!r}, which is the text of null"
                raise SchemaMismatch(msg, remedy="change decoder.prop.null.value")
            texts[name] = pc.fill_null(found, null)
        return texts

    def _check(self, texts: Mapping[str, pa.StringArray], encoded: pa.Array) -> None:
        """Check that the pattern decodes the encoded rows to the same values."""
        if self._pattern is None:
            return
        found = pc.extract_regex(encoded, self._pattern)
        wrong = bool(found.null_count)
        for name, column in zip(self._names, found.flatten(), strict=True):
            want = texts.get(name, column)
            wrong = wrong or not pc.all(pc.equal(column, want), min_count=0).as_py()
        if wrong:
            msg = "the pattern does not decode what the template encodes"
            remedy = "make pattern and template match, or use another format"
            raise SchemaMismatch(msg, remedy=remedy)


def _alone(rows: pa.RecordBatch) -> pa.StringArray:
    if rows.num_columns != 1:
        msg = f"the rows have {rows.num_columns} columns, and no template is set"
        raise SchemaMismatch(msg, remedy="set decoder.prop.template")
    texts = rendered(rows.column(0), rows.schema.names[0])
    if texts.null_count:
        msg = f"column {rows.schema.names[0]!r} has nulls, which have no text form"
        raise SchemaMismatch(msg, remedy="drop them, or set decoder.prop.template")
    return texts
