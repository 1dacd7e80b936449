"""Splits batches of messages into records, and records into texts.

Arrow's reader does not know message boundaries: an unclosed quote would swallow the
next message. So a marker record with a random text is inserted after messages. If all
markers come back, no message swallowed another one.
"""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Final, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from streamfactory.decoders.columns.buffers import has_byte, lengths_of
from streamfactory.decoders.columns.messages import joined

if TYPE_CHECKING:
    from streamfactory.decoders.columns.messages import BadMessages
    from streamfactory.decoders.csv.options import Dialect

_PIECES: Final = 8


class _Unread(Exception):
    """Arrow refused the input, or merged messages."""


@final
class Records:
    """Reads the records of messages that all have the same columns.

    Args:
        dialect: Format of the records.
        width: Number of columns.
        findings: Receives the bad messages.
    """

    def __init__(self, dialect: Dialect, width: int, findings: BadMessages) -> None:
        self._dialect = dialect
        self._width = width
        self._findings = findings
        self._mark = f"~{secrets.token_hex(12)}"
        self._end = self._mark + dialect.delimiter * (width - 1)
        self._misquoted = _misquoted(dialect) if dialect.quote else None

    def read(
        self, texts: pa.StringArray, messages: np.ndarray
    ) -> tuple[list[pa.Array], np.ndarray]:
        """The columns of all records, as texts, and the message index of each record.

        Args:
            texts: The messages.
            messages: Their indices, ascending.
        """
        texts, messages = self._quoted_well(texts, messages)
        if not has_byte(texts, *b"\r\n"):
            return self._pieces(texts, messages, several=False)
        multi = np.asarray(pc.match_substring_regex(texts, "[\r\n]"))
        if multi.all():
            return self._pieces(texts, messages, several=True)
        one = self._pieces(texts.filter(~multi), messages[~multi], several=False)
        many = self._pieces(texts.filter(multi), messages[multi], several=True)
        source = np.concatenate([one[1], many[1]])
        order = np.argsort(source, kind="stable")
        both = zip(one[0], many[0], strict=True)
        return [pa.concat_arrays(pair).take(pa.array(order)) for pair in both], source[
            order
        ]

    def _quoted_well(
        self, texts: pa.StringArray, messages: np.ndarray
    ) -> tuple[pa.StringArray, np.ndarray]:
        """The messages without text behind a closing quote, which Arrow appends."""
        if self._misquoted is None or not has_byte(texts, ord(self._dialect.quote)):
            return texts, messages
        wrong = np.asarray(pc.match_substring_regex(texts, self._misquoted))
        if not wrong.any():
            return texts, messages
        what = "a field of the message has text behind its closing quote"
        self._findings.add(messages[wrong], "malformed", what)
        return texts.filter(pa.array(~wrong)), messages[~wrong]

    def _pieces(
        self, texts: pa.StringArray, messages: np.ndarray, *, several: bool
    ) -> tuple[list[pa.Array], np.ndarray]:
        if not len(texts):
            return [pa.nulls(0, pa.string())] * self._width, messages
        try:
            read = self._several if several else self._singles
            return read(texts, messages)
        except _Unread:
            if len(texts) == 1:
                what = f"the message has not {self._width} fields in each record"
                self._findings.add(messages, "malformed", what)
                return [pa.nulls(0, pa.string())] * self._width, messages[:0]
        step = -(-len(texts) // _PIECES)
        parts = [
            self._pieces(
                texts.slice(at, step), messages[at : at + step], several=several
            )
            for at in range(0, len(texts), step)
        ]
        columns = zip(*(part[0] for part in parts), strict=True)
        source = np.concatenate([part[1] for part in parts])
        return [pa.concat_arrays(column) for column in columns], source

    def _singles(
        self, texts: pa.StringArray, messages: np.ndarray
    ) -> tuple[list[pa.Array], np.ndarray]:
        """Messages without a line end: at most one record each."""
        if not self._dialect.empty_lines:
            filled = lengths_of(texts) > 0
            if not filled.all():
                texts, messages = texts.filter(filled), messages[filled]
        wrong: list[int] = []

        def skip(row: csv.InvalidRow) -> str:
            wrong.append(row.number - 1)
            return "skip"

        columns = self._read(joined(_with_last(texts, self._end), "\n"), skip)
        # The reader never adds a record and an unclosed quote removes at least one, so
        # an equal count proves that no messages were merged.
        if len(columns[0]) + len(wrong) != len(texts) + 1:
            raise _Unread
        if columns[0][-1].as_py() != self._mark:
            raise _Unread
        if wrong:
            what = f"the message has not {self._width} fields in each record"
            self._findings.add(messages[wrong], "malformed", what)
            messages = np.delete(messages, wrong)
        return [column.slice(0, len(messages)) for column in columns], messages

    def _several(
        self, texts: pa.StringArray, messages: np.ndarray
    ) -> tuple[list[pa.Array], np.ndarray]:
        """Messages with line ends: a marker record is inserted after each."""
        if self._dialect.empty_lines:  # or the one before a marker would count
            texts = pc.replace_substring_regex(texts, "(\r\n|\r|\n)$", "")
        lines = joined(_with_last(texts, ""), f"\n{self._end}\n")
        columns = self._read(lines, None)
        marks = np.asarray(pc.fill_null(pc.equal(columns[0], self._mark), False))
        if marks.sum() != len(texts) or not marks[-1]:
            raise _Unread
        if len(texts) == 1:
            rows = len(marks) - 1
            return [column.slice(0, rows) for column in columns], messages.repeat(rows)
        source = messages[(np.cumsum(marks) - marks)[~marks]]
        kept = pa.array(~marks)
        return [column.filter(kept) for column in columns], source

    def _read(self, lines: pa.Buffer, skip: object) -> list[pa.Array]:
        dialect = self._dialect
        names = [f"c{index}" for index in range(self._width)]
        try:
            table = csv.read_csv(
                pa.BufferReader(lines),
                csv.ReadOptions(
                    use_threads=False, block_size=len(lines) + 1, column_names=names
                ),
                csv.ParseOptions(
                    delimiter=dialect.delimiter,
                    quote_char=dialect.quote or False,
                    escape_char=dialect.escape or False,
                    newlines_in_values=True,
                    ignore_empty_lines=not dialect.empty_lines,
                    invalid_row_handler=skip,
                ),
                csv.ConvertOptions(
                    check_utf8=False,
                    column_types=dict.fromkeys(names, pa.string()),
                    null_values=[dialect.null],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid:
            raise _Unread from None
        # One block yields one chunk, or none without records.
        return [
            column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
            for column in table.columns
        ]


def _misquoted(dialect: Dialect) -> str:
    """A regular expression of messages that have text behind a closing quote."""
    quote, end = re.escape(dialect.quote), f"{re.escape(dialect.delimiter)}\r\n"
    escape = re.escape(dialect.escape) if dialect.escape else ""
    escaped = f"|{escape}." if escape else ""
    quoted = f"{quote}(?:[^{quote}{escape}]|{quote}{quote}{escaped})*{quote}"
    first = f"(?:[^{quote}{escape}{end}]{escaped})"
    bare = f"(?:{first}(?:[^{escape}{end}]{escaped})*)?"
    return f"(?s)^(?:(?:{quoted}|{bare})[{end}])*{quoted}[^{quote}{end}]"


def _with_last(texts: pa.StringArray, last: str) -> pa.StringArray:
    return pa.concat_arrays([texts, pa.array([last])])
