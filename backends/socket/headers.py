"""Limits on the input of a peer, checked message by message.

`arrowipc` parses the headers; this module applies the options of the backend and raises
its errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from streamfactory import arrowipc as ipc
from streamfactory.arrowipc import DICTIONARY, END, MARKER, PREFIX, ROWS, SCHEMA
from streamfactory.arrowipc import IpcHeader as Header
from streamfactory.spi import CorruptData, MessageTooLarge

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "DICTIONARY",
    "END",
    "MARKER",
    "PREFIX",
    "ROWS",
    "SCHEMA",
    "Header",
    "Limits",
    "corrupt",
    "expanded",
    "header_length",
    "read_header",
    "too_large",
]

_MESSAGE: Final = "max.message.bytes"
_REMEDY: Final = (
    "check that the peer sends an Arrow stream and uses the same TLS setting"
)


def corrupt(what: str) -> CorruptData:
    """The error for bytes that are not an Arrow stream."""
    return CorruptData(what, remedy=_REMEDY)


def too_large(length: int, option: str, limit: int, what: str) -> MessageTooLarge:
    """The error for a length above its limit."""
    msg = f"the size of {what} is {length} bytes, {option} is {limit}"
    remedy = f"increase {option}, or write smaller batches"
    return MessageTooLarge(msg, remedy=remedy)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on the input of a peer, in bytes."""

    metadata: int
    message: int
    dictionary: int


def header_length(prefix: memoryview, limits: Limits) -> int:
    """Length of the header; 0 at the end of the stream.

    Raises:
        CorruptData: data_loss.
        MessageTooLarge: permanent.
    """
    try:
        return ipc.header_length(prefix, limits.metadata)
    except ipc.NotIpc as error:
        msg = f"received {bytes(prefix)!r} instead of an Arrow message"
        raise corrupt(msg) from error
    except ipc.IpcTooLong as error:
        option = "max.metadata.bytes"
        raise too_large(error.length, option, error.limit, "a header") from error


def read_header(data: memoryview, limits: Limits) -> Header:
    """Parse a header and check the sizes that it declares.

    Raises:
        CorruptData: data_loss.
        MessageTooLarge: permanent.
    """
    try:
        return ipc.read_header(data, limits.message)
    except ipc.NotIpc as error:
        raise corrupt(str(error)) from error
    except ipc.IpcTooLong as error:
        raise too_large(error.length, _MESSAGE, error.limit, "a message") from error


def expanded(header: Header, body: pa.Buffer, limits: Limits) -> int:
    """Decompressed bytes of a message's buffers.

    Raises:
        CorruptData: data_loss; a buffer lies outside of the body.
        MessageTooLarge: permanent.
    """
    try:
        return ipc.expanded(header, body, limits.message)
    except ipc.NotIpc as error:
        raise corrupt(str(error)) from error
    except ipc.IpcTooLong as error:
        what = "a decompressed message"
        raise too_large(error.length, _MESSAGE, error.limit, what) from error
