"""Whole batches of messages into records, and records into texts.

Arrow's reader knows nothing of messages: an open quote takes in the message behind it.
So a record of our own, which no message can hold, is put behind messages, and only what
leaves all of them standing was read as it is alone.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from streamfactory.decoders.columns.buffers import has_byte, lengths_of
from streamfactory.decoders.columns.messages import joined

if TYPE_CHECKING:
    from streamfactory.decoders.columns.messages import Findings
    from streamfactory.decoders.csv.options import Dialect

_PIECES: Final = 8


class _Unread(Exception):
    """The reader refused, or took messages together."""


@final
class Records:
    """The records of messages that all have the same columns.

    Args:
        dialect: How they are written.
        width: Columns of each.
        findings: Bad messages are added.
    """

    def __init__(self, dialect: Dialect, width: int, findings: Findings) -> None:
        self._dialect = dialect
        self._width = width
        self._findings = findings
        self._mark = f"~{secrets.token_hex(12)}"
        self._end = self._mark + dialect.delimiter * (width - 1)

    def read(
        self, texts: pa.StringArray, messages: np.ndarray
    ) -> tuple[list[pa.Array], np.ndarray]:
        """The columns of all records, as texts, and the message of each.

        Args:
            texts: Of the messages.
            messages: Their indices, rising.
        """
        if not has_byte(texts, *b"\r\n"):
            return self._pieces(texts, messages, several=False)
        multi = np.asarray(pc.match_substring_regex(texts, "[\r\n]"))
        one = self._pieces(texts.filter(~multi), messages[~multi], several=False)
        many = self._pieces(texts.filter(multi), messages[multi], several=True)
        source = np.concatenate([one[1], many[1]])
        order = np.argsort(source, kind="stable")
        both = zip(one[0], many[0], strict=True)
        return [pa.concat_arrays(pair).take(pa.array(order)) for pair in both], source[
            order
        ]

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
                what = f"it is not of records of {self._width} fields"
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
        """Messages without a line end: one record each, or none."""
        if not self._dialect.empty_lines:
            filled = lengths_of(texts) > 0
            if not filled.all():
                texts, messages = texts.filter(filled), messages[filled]
        wrong: list[int] = []

        def skip(row: csv.InvalidRow) -> str:
            wrong.append(row.number - 1)
            return "skip"

        columns = self._read(joined(_with_last(texts, self._end), "\n"), skip)
        # Nothing adds a record, and an open quote takes one away: where none is
        # missing, none was taken.
        if len(columns[0]) + len(wrong) != len(texts) + 1:
            raise _Unread
        if columns[0][-1].as_py() != self._mark:
            raise _Unread
        if wrong:
            what = f"it is not of records of {self._width} fields"
            self._findings.add(messages[wrong], "malformed", what)
            messages = np.delete(messages, wrong)
        return [column.slice(0, len(messages)) for column in columns], messages

    def _several(
        self, texts: pa.StringArray, messages: np.ndarray
    ) -> tuple[list[pa.Array], np.ndarray]:
        """Messages with line ends: a record of ours stands behind each."""
        texts = pc.replace_substring_regex(texts, "(\r\n|\r|\n)$", "")
        lines = joined(_with_last(texts, ""), f"\n{self._end}\n")
        columns = self._read(lines, None)
        marks = np.asarray(pc.fill_null(pc.equal(columns[0], self._mark), False))
        if marks.sum() != len(texts) or not marks[-1]:
            raise _Unread
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
        # One block is one chunk, and where there is no record none.
        return [
            column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
            for column in table.columns
        ]


def _with_last(texts: pa.StringArray, last: str) -> pa.StringArray:
    return pa.concat_arrays([texts, pa.array([last])])
