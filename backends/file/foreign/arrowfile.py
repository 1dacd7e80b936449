"""Index of one Arrow IPC file: stream or random-access, complete or growing."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from streamfactory.backends.file.foreign.decimals import widened
from streamfactory.backends.file.foreign.framing import (
    DICTIONARY,
    END,
    MAGIC,
    ROWS,
    SCHEMA,
    Block,
    Frame,
    Malformed,
    is_big_endian,
    is_legacy,
    read_footer,
    read_frame,
)
from streamfactory.backends.file.foreign.indexed import IndexedFile
from streamfactory.backends.file.foreign.medium import translate_errors
from streamfactory.backends.file.foreign.types import plain_schema
from streamfactory.backends.file.foreign_options import AUTO, RANDOM, STREAM
from streamfactory.spi import BatchValidator, FormatRefused, SchemaMismatch

if TYPE_CHECKING:
    from streamfactory.backends.file.foreign.medium import Medium, Stamp

_MARK: Final = 256
"""Bytes of the last message that are compared before reading continues after it."""


class ArrowFile(IndexedFile):
    """An index of the messages of one Arrow IPC file. One thread at a time.

    Message bodies are not read. A stream is scanned header by header, and from the last
    position when it has grown. Of a random-access file the footer and the metadata of
    each batch are read.

    Args:
        medium: The file; closed with the index.
        form: ``stream``, ``file``, or ``auto`` to detect it from the first bytes. It
            stays ``auto`` while the file is too short.
        longest: Maximum bytes of a message.
    """

    def __init__(self, medium: Medium, form: str, longest: int) -> None:
        self.written: pa.Schema | None = None
        """Schema in the types of the file."""
        self.message: pa.Buffer | None = None
        """The schema message of the file."""
        self.wide: pa.Buffer | None = None
        """The schema message with 64-bit decimals widened to 128, if it has any."""
        self.swapped = False
        """Whether the file has the other byte order."""
        self.dictionaries: list[Frame] = []
        self.known: list[int] = []
        """Number of dictionaries before each batch."""
        self._at = 0
        self._last = 0
        self._mark = b""
        self._legacy = False
        super().__init__(medium, form, longest)

    @property
    def needs_footer(self) -> bool:
        return self.form == RANDOM

    def grew(self, stamp: Stamp) -> bool:
        if self.whole or not self._seen or not stamp.same_file(self._seen):
            return False
        with translate_errors(self.path):
            last = self.medium.peek(self._last, len(self._mark))
        return stamp.size >= self._at and last == self._mark

    def _identity(self) -> str:
        return self._digest_of_head(self.frames[0].end if self.frames else self._at)

    # --- scanning -------------------------------------------------------------------

    def _extend(self, size: int) -> None:
        if self.form == AUTO:
            self.form = self._detect(size)
        if self.form == RANDOM:
            self._read_footer(size)
        elif self.form == STREAM and size >= 4:
            self._scan(size)
        self._mark = self.medium.peek(self._last, min(_MARK, self._at - self._last))

    def _detect(self, size: int) -> str:
        """The format, from the first bytes."""
        begin = self.medium.peek(0, len(MAGIC))
        if begin == MAGIC:
            return RANDOM
        return AUTO if MAGIC.startswith(begin) or size < 4 else STREAM

    def _scan(self, size: int) -> None:
        if not self._at:
            self._legacy = is_legacy(self.medium.peek)
        while frame := self._frame(self._at, size):
            if frame.kind == END:
                self._check_end(frame.end, size)
                self.whole = True
                self._at = frame.end
                return
            self._add(frame)
            self._last, self._at = frame.offset, frame.end

    def _frame(self, offset: int, size: int) -> Frame | None:
        try:
            return read_frame(
                self.medium.peek,
                offset,
                size,
                longest=self.longest,
                legacy=self._legacy,
            )
        except Malformed as error:
            if self.message is not None:
                raise
            begin = self.medium.peek(0, 8)
            msg = f"{self.path!r} is not an Arrow stream: it begins with {begin!r}"
            remedy = "remove the file, or set `format`"
            if begin.startswith(MAGIC):
                remedy = "it is a random-access file: set `format` to file or auto"
            elif begin.startswith(b"PAR1"):
                remedy = "it is a Parquet file: set `format` to parquet"
            raise FormatRefused(msg, remedy=remedy) from error

    def _add(self, frame: Frame) -> None:
        if frame.kind == SCHEMA:
            if self.message is not None:
                msg = f"the file has a second schema at byte {frame.offset}"
                raise Malformed(msg)
            self._set_schema(self.medium.peek(frame.offset, frame.size))
        elif self.message is None:
            msg = f"the file has rows at byte {frame.offset}, before a schema"
            raise Malformed(msg)
        elif frame.kind == DICTIONARY:
            self.dictionaries.append(frame)
        elif frame.rows:
            self.frames.append(frame)
            self.starts.append(self.rows + frame.rows)
            self.known.append(len(self.dictionaries))

    def _set_schema(self, message: bytes) -> None:
        wide = widened(message)
        self.swapped = is_big_endian(message) != (sys.byteorder == "big")
        self.wide = None if wide is None else pa.py_buffer(wide)
        buffer = pa.py_buffer(message)
        try:
            schema = pa.ipc.read_schema(buffer if self.wide is None else self.wide)
        except OSError as error:  # the message is in memory
            msg = f"the schema cannot be parsed: {error}"
            raise Malformed(msg) from error
        try:
            BatchValidator(schema)
        except SchemaMismatch as error:
            msg = f"the file {self.path!r} cannot be read: {error.what}"
            raise SchemaMismatch(msg, remedy=error.remedy) from error
        self.schema, self.written = plain_schema(schema), schema
        self.message = buffer

    def _check_end(self, end: int, size: int) -> None:
        if self.form == STREAM and any(self.medium.peek(end, min(8, size - end))):
            msg = (
                f"{size - end} bytes follow the end marker at byte {end}: "
                "concatenated streams are not supported"
            )
            raise Malformed(msg)

    # --- the footer -----------------------------------------------------------------

    def _read_footer(self, size: int) -> None:
        begin = self.medium.peek(0, len(MAGIC))
        if not MAGIC.startswith(begin):
            msg = (
                f"{self.path!r} is not an Arrow random-access file: "
                f"it begins with {begin!r}"
            )
            remedy = "remove the file, or set `format`"
            raise FormatRefused(msg, remedy=remedy)
        footer = read_footer(self.medium.peek, size)
        if footer is None:
            return
        self._set_schema(footer.schema)
        for block in footer.dictionaries:
            self._add(self._block(block, DICTIONARY, footer.begin))
        for block in footer.rows:
            self._add(self._block(block, ROWS, footer.begin))
        self.whole = True
        self._at = size

    def _block(self, block: Block, kind: int, limit: int) -> Frame:
        frame = self._frame(block.offset, limit)
        if frame is None or frame.kind != kind:
            msg = f"the footer names a message at byte {block.offset} that is not there"
            raise Malformed(msg)
        return frame
