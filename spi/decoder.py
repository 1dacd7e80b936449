"""Bytes to rows, a whole batch at a time (rules D1 to D4), and the way back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from streamfactory.spi.positions import Partition


@dataclass(frozen=True, slots=True)
class DecodeContext:
    """Where the messages of one call come from."""

    partition: Partition
    fields_to_read: Sequence[str] | None = None
    """Columns wanted; None means all. A decoder may read more."""
    headers: pa.Array | None = None
    """`headers_type`, one entry a message, where the stream has them."""


@dataclass(frozen=True, slots=True)
class BadMessage:
    """Why one message became no row."""

    message: int
    """Index into the values of the call."""
    code: str
    """Stable and short: ``malformed``, ``schema``, ``unknown_schema_id``, ..."""
    what: str
    """One sentence. Never the payload itself: it may hold what nobody should log."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """What a decoder answers."""

    rows: pa.RecordBatch
    """The rows, in the order of their messages, in the decoder's schema."""
    source: pa.Int32Array | None = None
    """The index of the message that each row came from, rising. None means one row
    for every message, in order, and no errors."""
    errors: Sequence[BadMessage] = ()


class MessageDecoder(ABC):
    """Decodes the messages of one stream. One per thread.

    Args:
        options: The declared options, parsed, by their key.
        topic: Name of the topic.
    """

    def __init__(self, options: Mapping[str, Any], topic: str) -> None:
        self.options = options
        self.topic = topic

    @abstractmethod
    def schema(self) -> pa.Schema:
        """The schema of all rows to come; known before the first message.

        Raises:
            SchemaUnknown: config; it has to be declared.
        """

    @abstractmethod
    def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
        """Decode binary values. Bad data never raises (rule D1).

        Args:
            values: binary or large_binary, no nulls: the framework makes the rows of
                tombstones itself (rule D2).
            context: Where they come from.

        Returns:
            0 to n rows for each message, and a `BadMessage` for each that is bad. A
            message without row and without error was filtered on purpose.
        """

    def close(self) -> None:  # noqa: B027 - a decoder that holds nothing may keep this
        """Give back all that was opened."""


class MessageEncoder(ABC):
    """The way back: rows to one message each. The rules of `MessageDecoder` hold."""

    def __init__(self, options: Mapping[str, Any], topic: str) -> None:
        self.options = options
        self.topic = topic

    @abstractmethod
    def encode(self, rows: pa.RecordBatch) -> pa.Array:
        """One binary value for each row.

        Raises:
            SchemaMismatch: permanent; rows of these types cannot be encoded.
        """

    def close(self) -> None:  # noqa: B027 - an encoder that holds nothing may keep this
        """Give back all that was opened."""
