"""Encoder of CSV: one record per message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.decoders.columns.buffers import glued
from streamfactory.decoders.columns.rendering import (
    lengths_of,
    listed,
    rendered,
)
from streamfactory.decoders.csv.options import Dialect
from streamfactory.spi import MessageEncoder, SchemaMismatch

if TYPE_CHECKING:
    from collections.abc import Mapping


class CsvEncoder(MessageEncoder):
    """Encodes each row as one record; quotes only the fields that need it."""

    def __init__(self, options: Mapping[str, Any], topic: str) -> None:
        super().__init__(options, topic)
        self._dialect = Dialect.of(options)

    def encode(self, rows: pa.RecordBatch) -> pa.Array:
        dialect = self._dialect
        parts: list[pa.Array | str] = []
        if self.options["header.in.message"] or self.options["skip.header"]:
            names = [
                self._field(pa.array([n]), n)[0].as_py() for n in rows.schema.names
            ]
            parts.append(dialect.delimiter.join(names) + "\n")
        for index, (name, column) in enumerate(
            zip(rows.schema.names, rows.columns, strict=True)
        ):
            if index:
                parts.append(dialect.delimiter)
            parts.append(self._texts(column, name))
        if rows.num_columns == 1 and not dialect.null and rows.column(0).null_count:
            msg = "a single null would be an empty line, which is not a record"
            raise SchemaMismatch(msg, remedy="set decoder.prop.null.value")
        return glued(*parts).cast(pa.binary())

    def _texts(self, column: pa.Array, name: str) -> pa.StringArray:
        kind = column.type
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            texts = self._list(column, name)
        else:
            texts = rendered(column, name)
        return pc.fill_null(self._field(texts, name), self._dialect.null)

    def _list(self, column: pa.Array, name: str) -> pa.StringArray:
        values = rendered(column.flatten(), name)
        separator = self._dialect.lists
        lost = pc.fill_null(pc.match_substring(values, separator), True)
        texts = listed(column, pc.fill_null(values, ""), separator)
        empty = pc.and_(pc.equal(texts, ""), pa.array(lengths_of(column) > 0))
        if pc.any(lost).as_py() or pc.any(empty).as_py():
            msg = f"column {name!r} has lists of null, of one empty text, or of texts "
            msg += f"that contain {separator!r}, which cannot be decoded again"
            raise SchemaMismatch(msg, remedy="set decoder.prop.multi.value.delimiter")
        return texts

    def _field(self, texts: pa.StringArray, name: str) -> pa.StringArray:
        """Texts as fields of a record."""
        dialect = self._dialect
        special = f"[{_class(dialect.delimiter, dialect.quote, dialect.escape)}\r\n]"
        comment = f"|^[{_class(dialect.comment)}]" if dialect.comment else ""
        pattern = f"{special}|^ | $|^\ufeff{comment}"
        need = pc.or_(
            pc.match_substring_regex(texts, pattern),
            pc.or_(pc.equal(texts, dialect.null), pc.equal(texts, "")),
        )
        if not pc.any(need).as_py():
            return texts
        if not dialect.quote:
            return self._escaped(texts, need, name)
        inner = texts
        if dialect.escape:
            inner = pc.replace_substring(inner, dialect.escape, dialect.escape * 2)
        inner = pc.replace_substring(inner, dialect.quote, dialect.quote * 2)
        return pc.if_else(need, glued(dialect.quote, inner, dialect.quote), texts)

    def _escaped(
        self, texts: pa.StringArray, need: pa.Array, name: str
    ) -> pa.StringArray:
        dialect = self._dialect
        plain = pc.match_substring_regex(texts, "^[^\r\n\ufeff ]+$")
        same = pc.equal(texts, dialect.null)
        lost = pc.or_(pc.invert(plain), same)
        if not dialect.escape or pc.any(pc.and_(need, lost)).as_py():
            msg = f"column {name!r} has a text that needs quotes"
            raise SchemaMismatch(msg, remedy="set decoder.prop.quote.character")
        texts = pc.replace_substring(texts, dialect.escape, dialect.escape * 2)
        return pc.replace_substring(
            texts, dialect.delimiter, dialect.escape + dialect.delimiter
        )


def _class(*characters: str) -> str:
    return "".join(f"\\x{ord(c):02x}" for c in characters if c)
