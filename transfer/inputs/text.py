"""CSV and JSON lines: records that end with a newline."""

from __future__ import annotations

import re
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from streamfactory.spi import DecodeError, FormatRefused, SchemaUnknown
from streamfactory.spi.nesting import DEEPEST, json_depth
from streamfactory.transfer.inputs.base import (
    UNREADABLE,
    Input,
    InputOptions,
    first_line,
)
from streamfactory.transfer.inputs.raw import Blocks, Bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

_CHUNK: Final = 1024**2
"""Bytes of CSV that one thread parses."""
_QUOTE: Final = ord('"')
_NEWLINE: Final = ord("\n")
_NULL_FIRST: Final = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*null")
"""Bytes that begin with a record that is null."""
_ARRAY_FIRST: Final = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*\[")
_OPENS: Final = np.zeros(256, np.uint8)
_OPENS[list(b"[{")] = 1
_REMEDY: Final = "correct the input, or declare other types with --schema"
_LINES_REMEDY: Final = (
    "write each object of the array on one line, as `jq -c '.[]'` does"
)


class _ArrayGiven(ValueError):
    """JSON begins with an array."""


def _remedy(error: Exception) -> str:
    return _LINES_REMEDY if isinstance(error, _ArrayGiven) else _REMEDY


class TextInput(Input):
    """Records that end with a newline; counted in bytes."""

    def __init__(
        self, name: str, source: Bytes, size: int | None, options: InputOptions
    ) -> None:
        self.name = name
        self.size = size
        self._options = options
        self._expected: Mapping[str, pa.DataType] = {}
        self._blocks = Blocks(name, source, self.cut, options.block_size)
        self._block = b""
        """Complete records, of which `_taken` bytes were consumed."""
        self._taken = 0

    def expect(self, schema: pa.Schema) -> None:
        """Read columns of these names as these types."""
        self._expected = {field.name: field.type for field in schema}

    def read(self, timeout: float, most: int) -> pa.RecordBatch | None:
        """The next rows, each of at least one line."""
        begin = self._blocks.consumed
        if not self._begin(timeout):
            return None
        if self._taken == len(self._block):
            self._block, self._taken = self._blocks.peek(timeout), 0
        end = self._end(most)
        data, self._taken = self._block[self._taken : end], end
        self._blocks.first(len(data))
        if not data.strip():
            return None
        try:
            return self.parse(data)
        except UNREADABLE as error:
            reason = first_line(error)
            msg = f"{self.name}, bytes {begin} to {begin + len(data)}: {reason}"
            raise DecodeError(msg, remedy=_remedy(error)) from error

    @property
    def finished(self) -> bool:
        """Whether everything was taken."""
        return self._blocks.finished

    @property
    def offset(self) -> int:
        """Bytes taken."""
        return self._blocks.consumed

    @property
    def progress(self) -> int:
        """Bytes of the file that were read."""
        return self._blocks.progress

    def digest(self) -> str:
        """Of the bytes taken."""
        return f"{self.format}:{self._blocks.digest()}"

    def skip(self, offset: int, digest: str) -> None:
        """Go on behind what was published before."""
        self._blocks.skip(max(0, offset - self._blocks.consumed))
        if self._blocks.consumed < offset:
            self.refuse(f"it has {self._blocks.consumed} bytes, not {offset}")
        if self.digest() != digest:
            self.refuse(f"its first {offset} bytes differ")
        if self._blocks.grew_in_mid_record():
            self.refuse(f"the record that ended at byte {offset} has grown")

    def close(self) -> None:
        """Close; twice is fine."""
        self._blocks.close()

    def cut(self, data: bytearray) -> int:
        """Return how many bytes are complete records."""
        return data.rfind(b"\n") + 1

    def ends(self, data: bytes) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Where the lines of whole records end that are not within quotes."""
        return np.flatnonzero(np.frombuffer(data, np.uint8) == _NEWLINE) + 1

    def _end(self, most: int) -> int:
        """Where so many records of the block end, counted from those taken."""
        # The last record of an input may have no newline.
        open_ended = not self._block.endswith(b"\n")
        if self._block.count(b"\n", self._taken) + open_ended <= most:
            return len(self._block)
        ends = self.ends(self._block)
        at = int(np.searchsorted(ends, self._taken, "right")) + most - 1
        return int(ends[at]) if at < len(ends) else len(self._block)

    @abstractmethod
    def parse(self, data: bytes) -> pa.RecordBatch:
        """Rows of whole records."""

    def _begin(self, timeout: float) -> bool:  # noqa: ARG002 - nothing stands before the rows
        """Consume what precedes the rows; False after the timeout."""
        return True

    def _guess(self, data: bytes) -> pa.Schema:
        try:
            return _settled(self.parse(data).schema)
        except UNREADABLE as error:
            reason = first_line(error)
            msg = f"{self.name} cannot be read as {self.format}: {reason}"
            raise FormatRefused(msg, remedy=_remedy(error)) from error


class CsvInput(TextInput):
    """CSV as RFC 4180 has it: quoted values may hold newlines."""

    format = "csv"

    def __init__(
        self, name: str, source: Bytes, size: int | None, options: InputOptions
    ) -> None:
        super().__init__(name, source, size, options)
        self._names: list[str] | None = None

    def columns(self, timeout: float) -> pa.Schema | None:
        """The columns of the header, with the types of the first block."""
        if not self._begin(timeout):
            return None
        data = self._blocks.peek(timeout)
        if not data and not self._blocks.finished:
            return None
        if not data.strip():
            return pa.schema(
                [
                    (name, self._expected.get(name, pa.string()))
                    for name in self._names or ()
                ]
            )
        return self._guess(data)

    def cut(self, data: bytearray) -> int:
        """Up to the last newline that is not within quotes."""
        if _QUOTE not in data:
            return data.rfind(b"\n") + 1
        return _cut_quoted(data, ord(self._options.delimiter))

    def ends(self, data: bytes) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Where the lines of whole records end that are not within quotes."""
        ends = super().ends(data)
        quotes = _quotes(data, ord(self._options.delimiter))
        return ends if quotes is None else ends[np.searchsorted(quotes, ends) % 2 == 0]

    def parse(self, data: bytes) -> pa.RecordBatch:
        """Rows of whole records."""
        from pyarrow import csv

        assert self._names is not None
        known = {n: kind for n, kind in self._expected.items() if n in self._names}
        table = csv.read_csv(
            pa.BufferReader(data),
            csv.ReadOptions(column_names=self._names, block_size=_CHUNK),
            csv.ParseOptions(
                delimiter=self._options.delimiter, newlines_in_values=b'"' in data
            ),
            csv.ConvertOptions(column_types=known),
        )
        return _one_batch(table)

    def _begin(self, timeout: float) -> bool:
        if self._names is not None:
            return True
        data = self._blocks.peek(timeout)
        if not data:
            if not self._blocks.finished:
                return False
            msg = f"{self.name} is empty: CSV begins with the names of its columns"
            raise FormatRefused(msg, remedy="omit it")
        if self._options.header:
            header = data[: _first_record(data)]
            self._names = self._header(header)
            self._blocks.first(len(header))
        else:
            self._names = list(self._expected)
            if not self._names:
                msg = f"{self.name} has no header: its columns are unknown"
                raise SchemaUnknown(msg, remedy="declare them with --schema")
        return True

    def _header(self, header: bytes) -> list[str]:
        from pyarrow import csv

        options = csv.ParseOptions(
            delimiter=self._options.delimiter, newlines_in_values=True
        )
        try:
            table = csv.read_csv(pa.BufferReader(header + b"\n"), parse_options=options)
            names: list[str] = table.schema.names
        except UNREADABLE as error:
            msg = f"{self.name} has no header: {first_line(error)}"
            raise FormatRefused(msg, remedy=_REMEDY) from error
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            msg = f"{self.name} has several columns named {twice[0]!r}"
            raise FormatRefused(msg, remedy="rename its columns")
        return names

    def skip(self, offset: int, digest: str) -> None:
        """Go on behind what was published before; the header is still read."""
        while offset and not self._begin(3600.0):
            continue
        super().skip(offset, digest)


class JsonInput(TextInput):
    """One JSON object a line."""

    format = "json"

    def columns(self, timeout: float) -> pa.Schema | None:
        """The columns of the first block."""
        data = self._blocks.peek(timeout)
        if not data.strip():
            if not self._blocks.finished and not data:
                return None
            if not self._expected:
                msg = f"{self.name} is empty: its columns are unknown"
                raise SchemaUnknown(msg, remedy="declare them with --schema")
            return pa.schema(list(self._expected.items()))
        return self._guess(data)

    def parse(self, data: bytes) -> pa.RecordBatch:
        """Rows of whole records."""
        from pyarrow import json

        _check_parsable(data)
        expected = pa.schema(list(self._expected.items())) if self._expected else None
        table = json.read_json(
            pa.BufferReader(data),
            json.ReadOptions(block_size=len(data) + 1),
            json.ParseOptions(explicit_schema=expected, newlines_in_values=False),
        )
        table.validate(full=True)  # Arrow 26 does not check that text is UTF-8
        return _one_batch(table)


def _check_parsable(data: bytes) -> None:
    """Refuse an array, and records that end the process in Arrow 25's reader of JSON.

    Raises:
        ValueError: The first record is null or an array, or one is nested too deep.
    """
    if _ARRAY_FIRST.match(data):
        msg = "one JSON object a line is expected, not an array"
        raise _ArrayGiven(msg)
    if _NULL_FIRST.match(data):
        msg = "a record is null, not an object"
        raise ValueError(msg)
    text = np.frombuffer(data, np.uint8)
    if not len(text):
        return
    begins = np.append(0, np.flatnonzero(text[:-1] == _NEWLINE) + 1)
    # As many as open at all is an upper bound: few records have to be looked at.
    opened = np.add.reduceat(_OPENS[text], begins, dtype=np.int64)
    for record in np.flatnonzero(opened > DEEPEST):
        end = begins[record + 1] if record + 1 < len(begins) else len(data)
        if json_depth(data[begins[record] : end]) > DEEPEST:
            msg = f"a record is nested deeper than {DEEPEST} levels"
            raise ValueError(msg)


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    if batches:
        return batches[0]
    return pa.RecordBatch.from_pylist([], schema=table.schema)


def _settled(schema: pa.Schema) -> pa.Schema:
    """Guessed types, without those that say nothing."""
    return pa.schema([pa.field(field.name, _type(field.type)) for field in schema])


def _type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz=kind.tz)
    if pa.types.is_list(kind):
        return pa.list_(_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _type(field.type)) for field in kind])
    return kind


def _first_record(data: bytes) -> int:
    """Length of the first record."""
    newline = data.find(b"\n") + 1
    while 0 < newline < len(data) and data[:newline].count(_QUOTE) % 2:
        following = data.find(b"\n", newline) + 1
        newline = following or len(data)
    return newline or len(data)


def _cut_quoted(data: bytearray, delimiter: int) -> int:
    """How many bytes are whole records, where some values are quoted."""
    newline = data.rfind(b"\n")
    quotes = _quotes(data, delimiter)
    if quotes is None:
        return newline + 1
    while newline >= 0 and np.searchsorted(quotes, newline) % 2:
        newline = data.rfind(b"\n", 0, newline)
    return newline + 1


def _quotes(
    data: bytes | bytearray, delimiter: int
) -> np.ndarray[Any, np.dtype[np.int64]] | None:
    """Where quotes are; None where none of them holds a newline together.

    A quote within a bare value quotes nothing; then a newline ends the record.
    """
    octets = np.frombuffer(data, np.uint8)
    quotes = np.flatnonzero(octets == _QUOTE)
    before = octets[np.maximum(quotes[::2] - 1, 0)]
    opening = (quotes[::2] == 0) | np.isin(before, (delimiter, 10, 13, _QUOTE))
    return quotes if len(quotes) and opening.all() else None
