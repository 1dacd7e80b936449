"""Decoding of messages that one program writes alike: equal keys in equal order.

Most batches consist of messages that differ in their values only. The text between the
values is then known, and comparing it with whole columns of bytes costs less than to
parse it. A `Layout` is such a text, learned from one message. It describes flat objects
without escapes. All other messages are left to the parser.

Why a match is proof: the literals are at the begin and at the end of the message and,
between them, in order, each compared byte by byte. All quotes of the message are in
them, so that no value has one, nor a backslash or a control character, which were ruled
out before. A value between quotes is therefore a string as it stands, and any other is
converted only if it is a number, ``true``, ``false`` or ``null``. Messages are taken by
their own offsets, so none can reach into the next one.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
import pyarrow as pa

from streamfactory.decoders.columns.buffers import data_of, offsets_of
from streamfactory.decoders.json.tokens import booleans, doubles, integers, texts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence, Set

    Convert = Callable[[pa.StringArray], tuple[pa.Array, np.ndarray | None]]
    Found = tuple[np.ndarray, dict[str, pa.Array]]
    """Indices of messages, and their columns by field."""

CONVERT: Final[Mapping[pa.DataType, Convert]] = {
    pa.string(): texts,
    pa.bool_(): booleans,
    pa.int64(): integers,
    pa.float64(): doubles,
}
"""By the type of a column before its cast: the conversion of its values."""
_FIELD: Final = re.compile(
    r' *"([^"\\]*)" *: *("[^"\\]*"|true|false|null|-?[0-9][0-9.eE+-]*) *([,}])'
)
_QUOTE, _BACKSLASH, _BLANK = b'"\\ '


@final
class Messages:
    """A batch of messages, with the places of their quotes."""

    def __init__(self, messages: pa.StringArray) -> None:
        offsets = offsets_of(messages)
        self.texts = messages
        self.data = data_of(messages)
        self.edges = (offsets - offsets[0]).astype(np.int64)
        self.quotes = np.flatnonzero(self.data == _QUOTE)
        self.plain = self._plain()
        """Mask of the messages without backslashes and control characters."""

    def _plain(self) -> np.ndarray:
        plain = np.ones(len(self.texts), bool)
        odd = self.data == _BACKSLASH
        if len(odd) and self.data.min() < _BLANK:
            odd |= self.data < _BLANK
        if odd.any():
            found = np.searchsorted(self.edges, np.flatnonzero(odd), side="right")
            plain[found - 1] = False
        return plain

    def with_quotes(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The plain messages with this many quotes, and the places of these."""
        if len(self.quotes) == len(self.texts) * count and self.plain.all():
            places = self.quotes.reshape(-1, count)
            inside = places[:, 0] >= self.edges[:-1]
            if (inside & (places[:, -1] < self.edges[1:])).all():
                return np.arange(len(places)), places
        first = np.searchsorted(self.quotes, self.edges)
        rows = np.flatnonzero(self.plain & (np.diff(first) == count))
        return rows, self.quotes[first[rows][:, None] + np.arange(count)]


@final
class Layout:
    """The text around the values of messages. Immutable.

    Args:
        literals: The text before the first value, between values, and after the last.
        values: For each value the name of its field, and its conversion.
        fields: All fields, including those that are null in each message.
    """

    def __init__(
        self,
        literals: Sequence[bytes],
        values: Sequence[tuple[str, Convert]],
        fields: Set[str],
    ) -> None:
        self._literals = literals
        self._values = values
        self.fields = fields
        self._quotes = [literal.count(b'"') for literal in literals]

    def columns(self, messages: Messages) -> Found | None:
        """Decode the messages of this layout; None if there are none."""
        rows, quotes = messages.with_quotes(sum(self._quotes))
        places = self._places(messages, rows, quotes)
        fine = np.ones(len(rows), bool)
        for before, behind in pairwise(places):
            fine &= behind >= before
        rows, places = _kept(fine, rows, places)
        fine = np.ones(len(rows), bool)
        for literal, begin in zip(self._literals, places[::2], strict=True):
            _compare(messages.data, begin, literal, fine)
        rows, places = _kept(fine, rows, places)
        return self._converted(messages.data, places, rows) if len(rows) else None

    def _places(
        self, messages: Messages, rows: np.ndarray, quotes: np.ndarray
    ) -> list[np.ndarray]:
        """Begin and end of each literal, by the quotes in those in the middle."""
        begin, before = messages.edges[rows], 0
        places = []
        for index, literal in enumerate(self._literals):
            if index == len(self._values):
                begin = messages.edges[rows + 1] - len(literal)
            elif index:
                begin = quotes[:, before] - literal.index(b'"')
            places += [begin, begin + len(literal)]
            before += self._quotes[index]
        return places

    def _converted(
        self, data: np.ndarray, places: list[np.ndarray], rows: np.ndarray
    ) -> Found | None:
        # Texts that alternate: a value, and what is between it and the next one.
        edges = np.stack(places[1:-1], axis=1, dtype=np.int32)
        offsets = np.append(edges.ravel(), np.int32(len(data)))
        pieces = pa.StringArray.from_buffers(
            edges.size, pa.py_buffer(offsets), pa.py_buffer(data)
        )
        columns, fine = {}, np.ones(len(rows), bool)
        for index, (name, convert) in enumerate(self._values):
            which = np.arange(2 * index, edges.size, edges.shape[1], dtype=np.int32)
            columns[name], valid = convert(pieces.take(pa.array(which)))
            if valid is not None:
                fine &= valid
        if fine.all():
            return rows, columns
        kept = pa.array(fine)
        columns = {name: column.filter(kept) for name, column in columns.items()}
        return (rows[fine], columns) if fine.any() else None


def _kept(
    fine: np.ndarray, rows: np.ndarray, places: list[np.ndarray]
) -> tuple[np.ndarray, list[np.ndarray]]:
    if fine.all():
        return rows, places
    return rows[fine], [place[fine] for place in places]


def _compare(
    data: np.ndarray, at: np.ndarray, literal: bytes, fine: np.ndarray
) -> None:
    """Clear the mask where the bytes at a place are not the literal."""
    width = next(width for width in (8, 4, 2, 1) if width <= len(literal))
    words: Any = np.ndarray(
        max(0, len(data) - width + 1), np.dtype(f"<u{width}"), data, strides=(1,)
    )
    for step in [*range(0, len(literal) - width, width), len(literal) - width]:
        word = int.from_bytes(literal[step : step + width], "little")
        fine &= words[at + step] == word


def learned(text: str, kinds: Mapping[str, pa.DataType]) -> Layout | None:
    """The layout of a message; None if it has none.

    Args:
        text: The message.
        kinds: Types of the columns before their cast, by field.
    """
    if not text.startswith("{"):
        return None
    literals: list[bytes] = []
    values: list[tuple[str, Convert]] = []
    fields: set[str] = set()
    done, end, closing = 0, 1, ","
    while closing == ",":
        field = _FIELD.match(text, end)
        if field is None or field[1] in fields:
            return None
        name, value, closing = field.groups()
        end = field.end()
        fields.add(name)
        kind, is_text = kinds.get(name, _kind(value)), value[0] == '"'
        if kind == pa.string() and value == "null":
            continue  # a part of the literal, since it has no quotes
        if value != "null" and is_text != (kind == pa.string()):
            return None
        literals.append(text[done : field.start(2) + is_text].encode())
        values.append((name, CONVERT[kind]))
        done = field.end(2) - is_text
    literals.append(text[done:].encode())
    return Layout(literals, values, fields) if values and end == len(text) else None


def _kind(value: str) -> pa.DataType:
    """The type that the value of an undeclared field is checked as."""
    if value[0] == '"':
        return pa.string()
    return pa.bool_() if value in ("true", "false", "null") else pa.float64()
