"""Limits on the Arrow messages of a peer, checked before anything is allocated.

`arrowipc` parses headers; this module names the options, and raises the errors of the
contract.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa

from streamfactory import arrowipc as ipc
from streamfactory.spi import CorruptData, MessageTooLarge
from streamfactory.spi.causes import first_line
from streamfactory.spi.soundness import UNPACKED_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streamfactory.spi import BatchValidator, StreamConfig

T = TypeVar("T")

TINY: Final = 128 * 1024
"""Bytes below which concatenating batches is cheaper than returning each."""
ENOUGH: Final = 1024 * 1024
"""Bytes up to which small batches are concatenated."""
_MOST_SLICES: Final = 1000
"""Of one message: they are kept until they are taken."""
_MESSAGE: Final = "max.message.bytes"
_REMEDY: Final = "check that the peer sends Arrow messages"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on the input of a peer, in bytes."""

    metadata: int
    message: int
    dictionary: int
    remedy: str = _REMEDY
    """For bytes that are not Arrow messages."""

    @classmethod
    def of(cls, config: StreamConfig, remedy: str = _REMEDY) -> Limits:
        """The limits of a configuration with `MESSAGE_OPTIONS`."""
        message: int = config[_MESSAGE]
        dictionary = config.get("max.dictionary.bytes", message)
        return cls(config["max.metadata.bytes"], message, dictionary, remedy)

    def corrupt(self, what: str) -> CorruptData:
        """The error for bytes that are not an Arrow message."""
        return CorruptData(what, remedy=self.remedy)

    def header_length(self, prefix: memoryview) -> int:
        """Length of the header; 0 at the end of the stream.

        Raises:
            CorruptData: data_loss.
            MessageTooLarge: permanent.
        """
        try:
            return ipc.header_length(prefix, self.metadata)
        except ipc.NotIpc as error:
            msg = f"received {bytes(prefix)!r} instead of an Arrow message"
            raise self.corrupt(msg) from error
        except ipc.IpcTooLong as error:
            option = "max.metadata.bytes"
            raise too_large(error.length, option, error.limit, "a header") from error

    def read_header(self, data: memoryview) -> ipc.IpcHeader:
        """Parse a header and check the sizes that it declares.

        Raises:
            CorruptData: data_loss.
            MessageTooLarge: permanent.
        """
        read = ipc.read_header
        return self._checked(lambda: read(data, self.message), "a message")

    def expanded(self, header: ipc.IpcHeader, body: memoryview | pa.Buffer) -> int:
        """Bytes of a message's buffers, decompressed.

        Raises:
            CorruptData: data_loss; a buffer lies outside of the body.
            MessageTooLarge: permanent.
        """
        if header.compressed is None:
            return header.body
        expanded, what = ipc.expanded, "a decompressed message"
        return self._checked(lambda: expanded(header, body, self.message), what)

    def decode(self, read: Callable[[], T], what: str) -> T:
        """Decode bytes whose header was checked, by pyarrow.

        Raises:
            CorruptData: data_loss.
        """
        try:
            return read()
        except (pa.ArrowException, ValueError, OSError, StopIteration) as error:
            reason = first_line(error)
            msg = f"{what} cannot be decoded: {reason}"
            raise self.corrupt(msg) from error

    def _checked(self, read: Callable[[], T], what: str) -> T:
        try:
            return read()
        except ipc.NotIpc as error:
            raise self.corrupt(str(error)) from error
        except ipc.IpcTooLong as error:
            raise too_large(error.length, _MESSAGE, error.limit, what) from error


def too_large(length: int, option: str, limit: int, what: str) -> MessageTooLarge:
    """The error for a length above its limit."""
    msg = f"the size of {what} is {length} bytes, {option} is {limit}"
    remedy = f"increase {option}, or write smaller batches"
    return MessageTooLarge(msg, remedy=remedy)


def parts(
    validator: BatchValidator, rows: pa.RecordBatch, size: int
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Slices of a validated batch that are safe to convert, each with its bytes.

    Raises:
        MessageTooLarge: permanent; one row unpacks to too much, or all of them.
    """
    if not validator.is_encoded:
        yield rows, size
        return
    for number, part in enumerate(validator.split(rows)):
        if number == _MOST_SLICES:  # a run of a few bytes can stand for any number
            msg = f"a batch of {rows.num_rows} rows unpacks to more than the maximum of"
            msg += f" {_MOST_SLICES * UNPACKED_BYTES} bytes"
            raise MessageTooLarge(msg, remedy="write the rows in smaller batches")
        yield part, size * part.num_rows // max(1, rows.num_rows)
