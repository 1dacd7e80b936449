"""How much is taken from a peer, message by message, and what it is told otherwise.

`spi.ipc` reads what a message announces; here are the limits of this backend's options,
and its errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from streamfactory.spi import CorruptData, MessageTooLarge, ipc
from streamfactory.spi.ipc import DICTIONARY, END, MARKER, PREFIX, ROWS, SCHEMA
from streamfactory.spi.ipc import IpcHeader as Header

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
_REMEDY: Final = "the peer is no Arrow program, or the connection is damaged"


def corrupt(what: str) -> CorruptData:
    """The error for bytes that are no Arrow stream."""
    return CorruptData(what, remedy=_REMEDY)


def too_large(length: int, option: str, limit: int, what: str) -> MessageTooLarge:
    """The error for a length that is over its limit."""
    msg = f"{what} of {length} bytes came, {option} allows {limit}"
    remedy = f"raise {option}, or make the writer's batches smaller"
    return MessageTooLarge(msg, remedy=remedy)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is taken from a peer. Bytes."""

    metadata: int
    message: int
    dictionary: int


def header_length(prefix: memoryview, limits: Limits) -> int:
    """How long the header is; 0 at the end of the stream.

    Raises:
        CorruptData: data_loss.
        MessageTooLarge: permanent.
    """
    try:
        return ipc.header_length(prefix, limits.metadata)
    except ipc.NotIpc as error:
        msg = f"{bytes(prefix)!r} came, where an Arrow message was to begin"
        raise corrupt(msg) from error
    except ipc.IpcTooLong as error:
        option = "max.metadata.bytes"
        raise too_large(error.length, option, error.limit, "a header") from error


def read_header(data: memoryview, limits: Limits) -> Header:
    """Read a header, and check what it announces.

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
    """Bytes of a message's buffers, decompressed.

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
