"""CSV as RFC 4180 has it: quoted values may contain line ends."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from streamfactory.spi import FormatRefused, SchemaUnknown
from streamfactory.transfer.inputs.text import REMEDY, TextInput, line_ends

if TYPE_CHECKING:
    from streamfactory.transfer.inputs.base import InputOptions
    from streamfactory.transfer.inputs.raw import Bytes
    from streamfactory.transfer.inputs.text import Ends

    Octets = np.ndarray[Any, np.dtype[np.uint8]]

_QUOTE, _LF, _CR = b'"\n\r'
_LONG: Final = 3600.0
_UNFINISHED: Final = "publish it when a line is complete, or declare them with --schema"
_HEAD: Final = 1 << 16
"""Bytes in which the header mostly ends."""


class CsvInput(TextInput):
    """Records that end with LF, CR LF or CR."""

    format = "csv"
    open_ended = True

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
        if data.strip() and self._expected is None:
            return self._guess(data)
        if self.unfinished and self._expected is None:
            msg = f"{self.name} has no complete row: the types of its columns are"
            msg += " unknown"
            raise SchemaUnknown(msg, remedy=_UNFINISHED)
        return self._schema()

    def skip(self, offset: int, digest: str) -> None:
        """Go on behind what was published before; the header is still read."""
        while offset and not self._begin(_LONG):
            continue
        super().skip(offset, digest)

    def cut(self, data: bytearray) -> int:
        """Up to the last line end that is not within quotes."""
        last = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if not last or _QUOTE not in data:
            return last
        octets = np.frombuffer(data, np.uint8)
        quotes = _quotes(octets, ord(self._options.delimiter))
        if np.searchsorted(quotes, last) % 2 == 0:
            return last
        ends = self.ends(data)  # the last one is within quotes, which is rare
        return int(ends[-1]) if len(ends) else 0

    def ends(self, data: bytes | bytearray) -> Ends:
        """Where the lines end that are not within quotes."""
        octets = np.frombuffer(data, np.uint8)
        is_end = octets == _LF
        if _CR in data:
            is_end |= (octets == _CR) & ~np.append(is_end[1:], False)
        ends = np.flatnonzero(is_end) + 1
        if _QUOTE not in data:
            return ends
        quotes = _quotes(octets, ord(self._options.delimiter))
        outside: Ends = ends[np.searchsorted(quotes, ends) % 2 == 0]
        return outside

    def messages(self, data: bytes) -> pa.Array:
        """One message, without a copy: it may have any number of records."""
        edges = pa.py_buffer(np.array([0, len(data)], np.int32))
        return pa.Array.from_buffers(pa.binary(), 1, [None, edges, pa.py_buffer(data)])

    def _begin(self, timeout: float) -> bool:
        if self._names is not None:
            return True
        data = self._blocks.peek(timeout)
        if not data:
            if not self._blocks.finished:
                return False
            if self.unfinished:
                msg = f"{self.name} has no complete line"
                raise SchemaUnknown(msg, remedy=_UNFINISHED)
            msg = f"{self.name} is empty: CSV begins with the names of its columns"
            raise FormatRefused(msg, remedy="omit it")
        if self._options.header:
            header = data[: self._first_end(data)]
            self._names = self._header(header)
            self._blocks.first(len(header))
            self._lines += line_ends(header)
        elif self._expected is None:
            msg = f"{self.name} has no header: its columns are unknown"
            raise SchemaUnknown(msg, remedy="declare them with `schema=`")
        else:
            self._names = self._expected.names
        return True

    def _first_end(self, data: bytes) -> int:
        """Return where the first line ends that is not within quotes."""
        ends = self.ends(data[:_HEAD])
        if not len(ends) or ends[0] >= _HEAD:  # it may go on there
            ends = self.ends(data)
        return int(ends[0]) if len(ends) else len(data)

    def _header(self, header: bytes) -> list[str]:
        try:
            text = io.StringIO(header.decode().lstrip("\ufeff"), newline="")
            reader = csv.reader(text, delimiter=self._options.delimiter, strict=True)
            found = next(reader, [])
        except (UnicodeDecodeError, csv.Error) as error:
            msg = f"{self.name} has no header: {error}"
            raise FormatRefused(msg, remedy=REMEDY) from error
        names = [name.strip() for name in found]
        if not names:
            msg = f"{self.name} has no header: its first line is empty"
            raise FormatRefused(msg, remedy=REMEDY)
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            msg = f"{self.name} has several columns named {twice[0]!r}"
            raise FormatRefused(msg, remedy="rename its columns")
        return names

    def _schema(self) -> pa.Schema:
        """The columns of the header; text where no type is expected."""
        assert self._names is not None
        known = self._expected if self._expected is not None else pa.schema([])
        kinds = {field.name: field.type for field in known}
        return pa.schema([(name, kinds.get(name, pa.string())) for name in self._names])

    def _decoder_options(self) -> dict[str, str]:
        assert self._names is not None
        names = io.StringIO()
        delimiter = self._options.delimiter
        csv.writer(names, delimiter=delimiter, lineterminator="").writerow(self._names)
        return {"delimiter": delimiter, "header": names.getvalue()}


def _quotes(octets: Octets, delimiter: int) -> Ends:
    """Where quoted values begin and end, in turn.

    A quote within a bare value quotes nothing.
    """
    quotes = np.flatnonzero(octets == _QUOTE)
    starts = np.zeros(256, bool)
    starts[[delimiter, _LF, _CR]] = True
    before = octets[np.maximum(quotes[::2] - 1, 0)]
    if (starts[before] | (before == _QUOTE)).all():  # also where the first is at 0
        return quotes
    opening = (quotes == 0) | starts[octets[quotes - 1]]
    found: list[int] = []
    inside, escaped = False, -1
    following = octets[np.minimum(quotes + 1, len(octets) - 1)] == _QUOTE
    for at, opens, doubles in zip(
        quotes.tolist(), opening.tolist(), following.tolist(), strict=True
    ):
        if at == escaped:
            continue
        if not inside:
            if not opens:
                continue
            inside = True
        elif doubles:
            escaped = at + 1
            continue
        else:
            inside = False
        found.append(at)
    return np.array(found, np.int64)
