"""One Arrow IPC file as it lies there: stream or random-access, whole or growing."""

from __future__ import annotations

import hashlib
import sys
from bisect import bisect_right
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
from streamfactory.backends.file.foreign.medium import Medium, translate_errors
from streamfactory.backends.file.foreign.types import plain_schema
from streamfactory.spi import BatchValidator, FormatRefused, SchemaMismatch

if TYPE_CHECKING:
    from streamfactory.backends.file.foreign.medium import Stamp

STREAM: Final = "stream"
RANDOM: Final = "file"
AUTO: Final = "auto"

_HEAD: Final = 64 * 1024
_MARK: Final = 256
"""Bytes of the last message that are looked at again before going on behind it."""
_SAMPLE: Final = 4096
_SAMPLES: Final = 16


class ArrowFile:
    """An index of the messages of one file. One thread at a time.

    Bodies are not looked at. A stream is scanned header by header, and on from there
    when it has grown; of a random-access file the footer is read, and the metadata of
    each batch that it names.

    Args:
        path: The file.
        form: ``stream``, ``file``, or ``auto``: what its first bytes say.
        longest: Bytes that a message may have.

    Raises:
        StreamError: It cannot be opened, or is no file of that form.
    """

    def __init__(self, path: str, form: str, longest: int) -> None:
        self.path = path
        self.longest = longest
        self.form = form
        """``auto`` while it is too short to tell."""
        self.whole = False
        """Whether its end was seen: its footer, or the end marker of a stream."""
        self.schema: pa.Schema | None = None
        """In plain types; None while it is not there."""
        self.written: pa.Schema | None = None
        """In the types that it has there."""
        self.message: pa.Buffer | None = None
        """As it stands there."""
        self.wide: pa.Buffer | None = None
        """The same message with decimals of 64 bits made 128, where it has any."""
        self.swapped = False
        """Whether its numbers have their bytes in the order of other machines."""
        self.frames: list[Frame] = []
        """Batches of rows; those without a row are left out."""
        self.starts: list[int] = [0]
        """First row of each batch; and, at the end, how many rows there are."""
        self.dictionaries: list[Frame] = []
        self.known: list[int] = []
        """How many dictionaries came before each batch."""
        self._at = 0
        self._last = 0
        self._mark = b""
        self._legacy = False
        self._incarnation: str | None = None
        with translate_errors(path):
            self.medium = Medium(path)
        self._seen: Stamp | None = None
        try:
            self.refresh()
        except BaseException:
            self.close()
            raise

    @property
    def rows(self) -> int:
        """How many rows there are, so far."""
        return self.starts[-1]

    def find(self, row: int) -> int:
        """Index of the batch that has a row."""
        return bisect_right(self.starts, row) - 1

    def grew(self, stamp: Stamp) -> bool:
        """Whether a change that was seen can be that this file has grown.

        Otherwise it was replaced, cut, or written anew in its place.
        """
        if self.whole or not self._seen or not stamp.same_file(self._seen):
            return False
        with translate_errors(self.path):
            last = self.medium.peek(self._last, len(self._mark))
        return stamp.size >= self._at and last == self._mark

    def refresh(self) -> None:
        """Look for what was added.

        Raises:
            CorruptData, FormatRefused: It is no Arrow file, or no longer one.
        """
        if self.whole:
            return
        with translate_errors(self.path):
            stamp = self.medium.look()
            if stamp == self._seen:
                return
            self.medium.stamp = stamp
            self._extend(stamp.size)
            self._mark = self.medium.peek(self._last, min(_MARK, self._at - self._last))
            self._seen = stamp

    def incarnation(self) -> str | None:
        """What the rows of this file count; None while there is not even one.

        Equal while it grows. Made of the file and its beginning, up to the end of the
        first batch: what is written over it in place begins otherwise, mostly.
        """
        if self._incarnation is None and (self.frames or self.whole):
            until = self.frames[0].end if self.frames else self._at
            with translate_errors(self.path):
                head = self.medium.peek(0, min(until, _HEAD))
            digest = hashlib.blake2b(head, digest_size=12).hexdigest()
            self._incarnation = f"{self.medium.stamp.inode:x}-{digest}"
        return self._incarnation

    def fingerprint(self) -> str:
        """The same wherever a whole file is copied to.

        Made of its length and its bytes: of all of them, or of samples of a long file.
        """
        size = self.medium.stamp.size
        if size > _SAMPLE * _SAMPLES:
            return self.sampled()
        digest = hashlib.blake2b(str(size).encode(), digest_size=12)
        with translate_errors(self.path):
            digest.update(self.medium.peek(0, size))
        return digest.hexdigest()

    def sampled(self) -> str:
        """The fingerprint of samples, of which a short file has thousands.

        Manifests that an earlier version wrote have it of all files.
        """
        size = self.medium.stamp.size
        step = max(1, (size - _SAMPLE) // (_SAMPLES - 1))
        digest = hashlib.blake2b(str(size).encode(), digest_size=12)
        with translate_errors(self.path):
            for offset in range(0, size, step):
                digest.update(self.medium.peek(offset, _SAMPLE))
        return digest.hexdigest()

    def is_listed_as(self, fingerprint: str) -> bool:
        """Whether a whole file is the one that was listed with a fingerprint."""
        return fingerprint == self.fingerprint() or fingerprint == self.sampled()

    def close(self) -> None:
        """Close the file; what was read of it stays readable."""
        self.medium.close()

    # --- scanning -------------------------------------------------------------------

    def _extend(self, size: int) -> None:
        if self.form == AUTO:
            self.form = self._tell(size)
        if self.form == RANDOM:
            self._read_footer(size)
        elif self.form == STREAM and size >= 4:
            self._scan(size)

    def _tell(self, size: int) -> str:
        """What its first bytes say."""
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
            msg = f"{self.path!r} is no Arrow stream: it begins with {begin!r}"
            remedy = "remove it, or name its format with `format`"
            if begin.startswith(MAGIC):
                remedy = "it is a random-access file: set `format` to file or auto"
            raise FormatRefused(msg, remedy=remedy) from error

    def _add(self, frame: Frame) -> None:
        if frame.kind == SCHEMA:
            if self.message is not None:
                msg = f"there is a second schema at byte {frame.offset}"
                raise Malformed(msg)
            self._set_schema(self.medium.peek(frame.offset, frame.size))
        elif self.message is None:
            msg = f"it has rows at byte {frame.offset}, before any schema"
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
        except OSError as error:  # what is read lies in memory
            msg = f"its schema cannot be read: {error}"
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
                f"{size - end} bytes follow its end marker at byte {end}: streams "
                "that are written behind each other into one file are not read"
            )
            raise Malformed(msg)

    # --- the footer -----------------------------------------------------------------

    def _read_footer(self, size: int) -> None:
        begin = self.medium.peek(0, len(MAGIC))
        if not MAGIC.startswith(begin):
            msg = (
                f"{self.path!r} is no random-access file of Arrow: "
                f"it begins with {begin!r}"
            )
            remedy = "remove it, or name its format with `format`"
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
            msg = f"at byte {block.offset} there is not what its footer names"
            raise Malformed(msg)
        return frame
