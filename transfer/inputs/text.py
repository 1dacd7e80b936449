"""Records of text: they are split here, and the decoders make rows of them."""

from __future__ import annotations

from abc import abstractmethod
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, final

import numpy as np
import pyarrow as pa

from streamfactory.spi import (
    DecodeContext,
    DecodeError,
    FormatRefused,
    Partition,
    SchemaMismatch,
    SchemaUnknown,
)
from streamfactory.spi.arrowjson import to_arrow_json
from streamfactory.spi.ddl import to_ddl
from streamfactory.transfer.inputs.base import Input, InputOptions
from streamfactory.transfer.inputs.raw import Blocks, Bytes
from streamfactory.transfer.inputs.types import textual, united
from streamfactory.wiring.plugins.manager import default_manager

if TYPE_CHECKING:
    from streamfactory.spi import Decoded, MessageDecoder

    Ends = np.ndarray[Any, np.dtype[np.int64]]

REMEDY: Final = "correct the input, or declare other types with `schema=`"
_LF: Final = 10
_CR: Final = 13
"""Line ends are this byte or less."""
_CONTEXT: Final = DecodeContext(Partition("input", 0))


class Bad(NamedTuple):
    """A record that cannot be decoded."""

    number: int
    """Of the records that were decoded together, from 0."""
    begin: int
    """Its first byte."""
    record: bytes
    what: str
    """The decoder's reason."""


class Cause(NamedTuple):
    """Why a record is refused."""

    what: str
    remedy: str = REMEDY
    kind: type[DecodeError | SchemaMismatch] = DecodeError


class TextInput(Input):
    """Records that end with a line end; counted in bytes."""

    open_ended: ClassVar[bool] = False
    """Whether a part of a record can be a record: then only a line end shows that its
    writer has finished it."""

    def __init__(
        self, name: str, source: Bytes, size: int | None, options: InputOptions
    ) -> None:
        self.name = name
        self.size = size
        self._options = options
        self._texts = _Decoders(name, self.format)
        self._expected: pa.Schema | None = None
        self._guessed = False
        self._decoder: MessageDecoder | None = None
        self._blocks = Blocks(
            name,
            source,
            self.cut,
            options.block_size,
            keeps_rest=self.open_ended and options.continued,
        )
        self._block = b""
        """Complete records, of which `_taken` bytes were consumed."""
        self._taken = 0
        self._ahead: tuple[bytes, Decoded] | None = None
        """The records that types were guessed from, and what they were decoded to."""
        self._rows: int | None = 0
        """Rows that were read; None if a part was published before."""
        self._lines = 0
        """Line ends that were consumed, of a file that is read from its begin."""

    def expect(self, schema: pa.Schema, *, guessed: bool = False) -> None:
        """Read columns of these names as these types."""
        if self._expected is None or not (guessed and self._expected.equals(schema)):
            self._ahead = None
        self._expected, self._guessed, self._decoder = schema, guessed, None

    def read(self, timeout: float, most: int) -> pa.RecordBatch | None:
        """The next rows, each of at least one line."""
        if not self._begin(timeout):
            return None
        begin = self._blocks.consumed
        if self._taken == len(self._block):
            self._block, self._taken = self._blocks.peek(timeout), 0
        end = self._end(most)
        data, self._taken = self._block[self._taken : end], end
        self._blocks.first(len(data))
        before, self._lines = self._lines, self._lines + line_ends(data)
        if not data.strip():
            return None
        if self._decoder is None:
            options = self._decoder_options()
            schema = self._schema()
            self._decoder = self._texts.make(schema, options, exact=self._guessed)
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] == data:
            decoded = ahead[1]
        else:
            decoded = self._decoder.decode(self.messages(data), _CONTEXT)
        if decoded.errors:
            raise self._error(self._decoder, data, begin, before, decoded)
        if self._rows is not None:
            self._rows += decoded.rows.num_rows
        return decoded.rows

    @property
    def finished(self) -> bool:
        """Whether everything was taken."""
        return self._blocks.finished

    @property
    def unfinished(self) -> int:
        """Bytes of the last line, if it has no end and may get one."""
        return self._blocks.unfinished

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
        self._rows = None if offset else self._rows
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

    # --- of a format --------------------------------------------------------------

    @abstractmethod
    def cut(self, data: bytearray) -> int:
        """Return how many bytes are complete records."""

    @abstractmethod
    def ends(self, data: bytes) -> Ends:
        """Where the records end, behind their line ends."""

    @abstractmethod
    def messages(self, data: bytes) -> pa.Array:
        """Whole records as messages of the decoder."""

    def explain(self, bad: Bad) -> Cause:
        """Return why a record is refused."""
        return Cause(bad.what.replace("the message", "a record", 1))

    @abstractmethod
    def _begin(self, timeout: float) -> bool:
        """Consume what precedes the rows; False after the timeout."""

    @abstractmethod
    def _schema(self) -> pa.Schema:
        """The columns to decode, with the expected types."""

    def _decoder_options(self) -> dict[str, str]:
        return {}

    # --- records ------------------------------------------------------------------

    def _end(self, most: int) -> int:
        """Where so many records of the block end, counted from those taken."""
        octets = np.frombuffer(self._block, np.uint8)[self._taken :]
        if np.count_nonzero(octets <= _CR) < most:
            return len(self._block)  # mostly, and no record has to be looked for
        ends = self.ends(self._block)
        at = int(np.searchsorted(ends, self._taken, "right")) + most - 1
        return int(ends[at]) if at < len(ends) else len(self._block)

    def _records(self, data: bytes) -> list[tuple[int, bytes]]:
        """Return the first byte of each record, and the record."""
        edges = sorted({0, *self.ends(data).tolist(), len(data)})
        found = ((begin, data[begin:end]) for begin, end in pairwise(edges))
        return [one for one in found if one[1].strip()]

    def _bad(self, decoder: MessageDecoder, data: bytes, decoded: Decoded) -> Bad:
        """Return the first bad record: the messages may have had several records."""
        records = self._records(data)
        values = pa.array([record for _, record in records], pa.binary())
        errors = decoder.decode(values, _CONTEXT).errors
        if not errors:  # the records are bad together only
            return Bad(0, 0, data, decoded.errors[0].what)
        number = errors[0].message
        return Bad(number, *records[number], errors[0].what)

    def _guess(self, data: bytes) -> pa.Schema:
        """Guess the types of columns from the first block.

        Raises:
            FormatRefused: permanent; the block cannot be decoded.
        """
        messages, options = self.messages(data), self._decoder_options()
        try:
            found = self._texts.infer(messages, options)
        except SchemaUnknown as error:
            bad = self._without_schema(data) or Bad(0, 0, data, error.what)
            raise self._not_of_format(bad) from error
        decoder = self._texts.make(found, options, exact=True)
        decoded = decoder.decode(messages, _CONTEXT)
        if decoded.errors:
            raise self._not_of_format(self._bad(decoder, data, decoded))
        self.sampled = decoded.rows.num_rows
        self._expected, self._guessed = found, True
        self._ahead = data, decoded
        return found

    def _without_schema(self, data: bytes) -> Bad | None:
        """Return the first record that no schema decodes; None if there is none."""
        decoder = self._texts.make(pa.schema({"x": pa.string()}), {}, exact=False)
        decoded = decoder.decode(self.messages(data), _CONTEXT)
        return self._bad(decoder, data, decoded) if decoded.errors else None

    def _not_of_format(self, bad: Bad) -> FormatRefused:
        cause = self.explain(bad)
        msg = f"{self.name} cannot be read as {self.format}: {cause.what}"
        return FormatRefused(msg, remedy=cause.remedy)

    def _error(
        self,
        decoder: MessageDecoder,
        data: bytes,
        begin: int,
        lines: int,
        decoded: Decoded,
    ) -> DecodeError | SchemaMismatch:
        bad = self._bad(decoder, data, decoded)
        what, remedy, kind = self.explain(bad)
        at = begin + bad.begin
        place = f"bytes {at} to {at + len(bad.record)}"
        if self._rows is not None:
            line = lines + data[: bad.begin].count(b"\n") + 1
            place = f"line {line}, row {self._rows + bad.number + 1}, {place}"
        if self._guessed:
            remedy = self._fitting_schema(data) or remedy
        return kind(f"{self.name}, {place}: {what}", remedy=remedy)

    def _fitting_schema(self, data: bytes) -> str | None:
        """Return the remedy if other types fit, after some were guessed too narrow."""
        assert self._expected is not None
        messages, options = self.messages(data), self._decoder_options()
        try:
            wider = united(self._expected, self._texts.infer(messages, options))
            decoder = self._texts.make(wider, options, exact=False)
            text = to_ddl(wider)
        except (SchemaUnknown, SchemaMismatch, ValueError):
            return None
        if decoder.decode(messages, _CONTEXT).errors:
            return None
        return f"the types were guessed: pass `schema={text!r}`, which fits these rows"


def line_ends(data: bytes) -> int:
    """How many bytes of text are LF; several times as fast as its own `count`."""
    return int(np.count_nonzero(np.frombuffer(data, np.uint8) == _LF))


@final
class _Decoders:
    """Creates decoders of a format.

    Args:
        name: Of the input, for messages.
        format: The decoder's name.
    """

    def __init__(self, name: str, format: str) -> None:
        self._name = name
        self._plugin = default_manager().decoder(format)

    def make(
        self, schema: pa.Schema, options: dict[str, str], *, exact: bool
    ) -> MessageDecoder:
        """Create a decoder.

        Args:
            schema: Columns of its rows; types without text become others that the
                stream's types can be converted from.
            options: As text.
            exact: Whether a text must be as its number is printed.

        Raises:
            SchemaMismatch: permanent; a type has no text.
        """
        try:
            texts = {**options, "schema": to_arrow_json(textual(schema))}
        except ValueError as error:
            msg = f"{self._name}: {error}"
            raise SchemaMismatch(msg, remedy="publish Arrow or Parquet") from error
        return self._plugin.decoder(self._parsed(texts, exact=exact), self._name)  # type: ignore[misc]

    def infer(self, messages: pa.Array, options: dict[str, str]) -> pa.Schema:
        """Return the types that fit messages.

        Raises:
            SchemaUnknown: config; none do.
        """
        # A sample is decoded column by column: the others are unknown.
        parsed = self._parsed({**options, "unknown.fields": "ignore"}, exact=True)
        return self._plugin.decoder.infer(messages, parsed)  # type: ignore[union-attr]

    def _parsed(self, texts: dict[str, str], *, exact: bool) -> dict[str, Any]:
        parsed = {}
        for option in self._plugin.options:
            text = texts.get(option.key, option.default)
            if option.key == "numbers" and exact:
                text = "exact"
            if text is None:
                continue
            try:
                parsed[option.key] = option.parse(text)
            except ValueError as error:  # a type or a name that the format lacks
                msg = f"{self._name}: the {option.key} {error}"
                remedy = "declare other columns, or rename them"
                raise SchemaMismatch(msg, remedy=remedy) from error
        return parsed
