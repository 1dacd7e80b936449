"""Decoder of CSV: splits records into texts and casts them to the schema."""

from __future__ import annotations

import csv
import re
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.decoders.columns.buffers import has_byte
from streamfactory.decoders.columns.casting import Casting
from streamfactory.decoders.columns.inferring import fitting
from streamfactory.decoders.columns.messages import BadMessages, answer, as_texts
from streamfactory.decoders.columns.options import declared_schema
from streamfactory.decoders.csv.options import Dialect
from streamfactory.decoders.csv.records import Records
from streamfactory.spi import (
    ConfigError,
    DecodeContext,
    Decoded,
    MessageDecoder,
    Partition,
    SchemaUnknown,
)
from streamfactory.spi.arrowjson import to_arrow_json
from streamfactory.spi.decoder import find_lookalikes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Part = tuple[list[pa.Array], np.ndarray]

_FIRST_LINE = "(?s)^(?P<first>[^\r\n]*)(?:\r\n|\r|\n)?(?P<rest>.*)$"


class CsvDecoder(MessageDecoder):
    """Decodes any number of records per message."""

    def __init__(self, options: Mapping[str, Any], topic: str) -> None:
        super().__init__(options, topic)
        self._schema = declared_schema(options, topic, "CSV")
        self._dialect = Dialect.of(options)
        self._null = None
        if self._dialect.escaped_null:
            self._null, mark = _null_field(self._dialect), f"~{secrets.token_hex(12)}"
            self._dialect = replace(self._dialect, null=mark)
        self._names = self._schema.names
        if "header" in options:
            self._names = split_header(options["header"], self._dialect)
            reason = self._header_error(self._names)
            if reason is not None:
                msg = f"decoder.prop.header does not fit decoder.prop.schema: {reason}"
                raise ConfigError(msg)

    @classmethod
    def infer(cls, values: pa.Array, options: Mapping[str, Any]) -> pa.Schema:
        names: Sequence[str] = ()
        header, dialect = options.get("header"), Dialect.of(options)
        if header is None and options["header.in.message"]:
            texts = as_texts(values, BadMessages()).drop_null()
            first = pc.extract_regex(texts, _FIRST_LINE).field("first")
            header = next((text for text in first.to_pylist() if text), None)
        if header is not None:
            names = split_header(header, dialect)
        if not names or len(set(names)) < len(names):
            msg = "the names of CSV columns are unknown without a header"
            raise SchemaUnknown(
                msg, remedy="set decoder.prop.schema or decoder.prop.header"
            )
        texts_only = to_arrow_json(pa.schema([(name, pa.string()) for name in names]))
        decoder = cls({**options, "schema": texts_only}, "sample")
        decoded = decoder.decode(values, DecodeContext(Partition("sample", 0)))
        return fitting(decoded.rows)

    def schema(self) -> pa.Schema:
        return self._schema

    def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
        findings = BadMessages(context)
        texts = as_texts(values, findings)
        messages = np.arange(len(texts))
        if texts.null_count:
            messages = np.flatnonzero(texts.is_valid())
            texts = texts.drop_null()
        texts = self._cleaned(texts)
        if self.options["header.in.message"] or self.options["skip.header"]:
            columns, source = self._headed(texts, messages, findings)
        else:
            columns, source = self._part(self._names, texts, messages, findings)
        each = np.array_equal(source, np.arange(len(values)))
        exact = self.options["numbers"] == "exact"
        casting = Casting(self._dialect.unit, exact=exact)
        return answer(
            columns, self._schema, casting, findings, None if each else source
        )

    def _cleaned(self, texts: pa.StringArray) -> pa.StringArray:
        """Messages without byte order marks, comments and surrounding spaces."""
        if has_byte(texts, 0xEF):
            texts = pc.replace_substring_regex(texts, "^\ufeff+", "")
        dialect = self._dialect
        quote, delimiter = re.escape(dialect.quote), re.escape(dialect.delimiter)
        quoted = f"({quote}[^{quote}]*{quote})" if quote else "(\\z.)"
        if dialect.comment:
            # The first alternative skips quoted fields.
            line = f"^{re.escape(dialect.comment)}[^\r\n]*(?:\r\n|\r|\n)?"
            pattern = f"(?m){quoted}|(?:{line})"
            texts = pc.replace_substring_regex(texts, pattern, "\\1")
        if dialect.trim:
            pattern = f"(?m){quoted}|(?: *({delimiter}) *)|(?:^ +)|(?: +$)"
            texts = pc.replace_substring_regex(texts, pattern, "\\1\\2")
        if self._null is not None:
            # Twice: adjacent matches share a delimiter, so one pass misses every
            # second.
            for _ in range(2):
                mark = f"\\1{dialect.null}\\2"
                texts = pc.replace_substring_regex(texts, self._null, mark)
        return texts

    def _headed(
        self, texts: pa.StringArray, messages: np.ndarray, findings: BadMessages
    ) -> Part:
        """Messages with a header line; those with equal headers are read at once."""
        first, rest = pc.extract_regex(texts, _FIRST_LINE).flatten()
        if not self.options["header.in.message"]:
            return self._part(self._names, rest, messages, findings)
        headers = first.dictionary_encode()
        kinds = np.asarray(headers.indices)
        parts = []
        for kind, header in enumerate(headers.dictionary.to_pylist()):
            mine = kinds == kind
            names = split_header(header, self._dialect)
            reason = self._header_error(names)
            if reason is None:
                part = rest.filter(pa.array(mine))
                parts.append(self._part(names, part, messages[mine], findings))
            else:
                findings.add(messages[mine], "schema", reason)
        if len(parts) == 1:
            return parts[0]
        return _merged(parts, self._schema)

    def _part(
        self,
        names: Sequence[str],
        texts: pa.StringArray,
        messages: np.ndarray,
        findings: BadMessages,
    ) -> Part:
        """The columns of the schema, from messages with the columns ``names``."""
        known = self._schema.names
        findings.misfits.lookalikes |= find_lookalikes(names, known)
        if findings.misfits.undeclared and set(names) - set(known):
            findings.misfits.add_undeclared(messages)
        records = Records(self._dialect, len(names), findings)
        found, source = records.read(texts, messages)
        by_name = dict(zip(names, found, strict=True))
        columns = []
        for field in self._schema:
            column = by_name.get(field.name)
            if column is None:
                column = pa.nulls(len(source), pa.string())
            if pa.types.is_list(field.type) or pa.types.is_large_list(field.type):
                column = self._lists(column)
            columns.append(column)
        return columns, source

    def _lists(self, column: pa.StringArray) -> pa.ListArray:
        lists = pc.split_pattern(column, self._dialect.lists)
        empty = pc.equal(column, "")
        return pc.if_else(empty, pa.scalar([], lists.type), lists)

    def _header_error(self, names: Sequence[str]) -> str | None:
        """Why a header does not fit the schema; quotes names of the schema only."""
        if not names or len(set(names)) < len(names):
            return "the header has no column or a duplicate column"
        known = self._schema.names
        missing = [name for name in known if name not in names]
        if missing and self.options["missing.fields"] == "error":
            return f"the header lacks column {missing[0]!r}"
        if self.options["unknown.fields"] == "error" and set(names) - set(known):
            return "the header has a column that is not in the schema"
        return None


def split_header(header: str, dialect: Dialect) -> list[str]:
    """The names in a header; empty if it cannot be parsed."""
    quote = dialect.quote or None
    reader = csv.reader(
        [header],
        delimiter=dialect.delimiter,
        quotechar=quote,
        quoting=csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE,
        escapechar=dialect.escape or None,
        strict=True,
    )
    try:
        return [name.strip() for name in next(reader, [])]
    except csv.Error:
        return []


def _null_field(dialect: Dialect) -> str:
    r"""A regular expression that matches a whole field that is null.

    Arrow removes escapes before it compares with null values, so it cannot match
    MySQL's ``\N``.
    """
    escape, delimiter = re.escape(dialect.escape), re.escape(dialect.delimiter)
    parted = f"(?:^|[^{escape}])(?:{escape}{escape})*{delimiter}"
    return f"(?m)(^|{parted}){re.escape(dialect.null)}({delimiter}|$)"


def _merged(parts: Sequence[Part], schema: pa.Schema) -> Part:
    if not parts:
        return [pa.nulls(0, field.type) for field in schema], np.zeros(0, np.int64)
    source = np.concatenate([part[1] for part in parts])
    order = np.argsort(source, kind="stable")
    columns = zip(*(part[0] for part in parts), strict=True)
    at = pa.array(order)
    return [pa.concat_arrays(column).take(at) for column in columns], source[order]
