"""Validation of clients' batches: size limits and values, before any use."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

import pyarrow as pa
import pyarrow.flight as fl

from streamfactory.spi import (
    BatchValidator,
    ConnectionFailed,
    FormatRefused,
    MessageTooLarge,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.spi import SoundRows

_REMEDY = "send batches as an Arrow library writes them"


@final
class UncheckedRows:
    """A batch as a client has sent it: nothing is computed on it before validation."""

    __slots__ = ("__batch",)

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.__batch = batch

    def validated(self, validator: BatchValidator) -> SoundRows:
        """Return the rows.

        Raises:
            CorruptData: data_loss; a value is invalid.
        """
        return validator.validated(self.__batch)


class Incoming(NamedTuple):
    """The batches that one call of a client sends."""

    client: str
    """Key by which bytes are counted."""
    context: fl.ServerCallContext
    reader: fl.MetadataRecordBatchReader
    most_bytes: int
    """Maximum bytes of a batch."""

    def sound(self) -> Iterator[tuple[SoundRows | None, bytes]]:
        """Each batch, validated, with its metadata; None for metadata alone.

        Raises:
            StreamError: As `received`; or a value of a batch is refused.
        """
        validator = BatchValidator(self.reader.schema)
        for rows, metadata in self.received():
            yield None if rows is None else rows.validated(validator), metadata

    def received(self) -> Iterator[tuple[UncheckedRows | None, bytes]]:
        """As `sound`, without validation: the caller validates before any use.

        gRPC assembles a message before it can be checked: the limit keeps large ones
        out of the store, and a client has to send the bytes that it makes the server
        hold.

        Raises:
            ConnectionFailed: transient; the client disconnected before it ended the
                call.
            FormatRefused: permanent; a batch is no Arrow data.
            MessageTooLarge: permanent; a batch has more than ``most_bytes``.
        """
        while True:
            try:
                chunk = self.reader.read_chunk()
            except StopIteration:
                # Also raised if the client was killed.
                if self.context.is_cancelled():
                    msg = "the client aborted the put"
                    raise ConnectionFailed(msg) from None
                return
            except fl.FlightError:
                raise
            except (pa.ArrowException, OSError) as error:
                msg = f"a batch cannot be decoded: {error}"
                raise FormatRefused(msg, remedy=_REMEDY) from error
            batch, metadata = chunk.data, bytes(chunk.app_metadata or b"")
            if batch is None:
                yield None, metadata
                continue
            size = batch.get_total_buffer_size()  # reads no values
            if size > self.most_bytes:
                msg = f"a batch has {size} bytes; {self.most_bytes} are allowed"
                raise MessageTooLarge(msg, remedy="send smaller batches")
            yield UncheckedRows(batch), metadata
