"""Writing to the server: rows of one attempt by ``DoPut``, staged until committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfactory.backends.flight.protocol.codec import decode, encode
from streamfactory.backends.flight.protocol.messages import Part, Received, Sealed
from streamfactory.backends.flight.server.batches import sound_batches
from streamfactory.backends.flight.server.logs import open_topic
from streamfactory.spi import MisuseError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa
    import pyarrow.flight as fl

    from streamfactory.arrowlog import LogStage, LogStore
    from streamfactory.backends.flight.protocol.messages import Stage
    from streamfactory.backends.flight.server.uploads import Uploads


def receive_stage(
    store: LogStore,
    uploads: Uploads,
    client: str,
    wanted: Stage,
    context: fl.ServerCallContext,
    reader: fl.MetadataRecordBatchReader,
    writer: fl.FlightMetadataWriter,
    most_bytes: int,
) -> None:
    """Stage the batches of a put, and answer its verdict before the call ends."""
    log = open_topic(store, wanted.topic, wanted.incarnation)
    stage = uploads.stage(log, wanted.attempt, client)
    try:
        _receive(stage, sound_batches(reader, context, most_bytes), writer)
        sealed = stage.seal()
    except BaseException:
        stage.discard()
        raise
    files = tuple(dict(file) for file in sealed.files)
    writer.write(encode(Sealed(sealed.attempt, files)))


def _receive(
    stage: LogStage,
    batches: Iterable[tuple[pa.RecordBatch | None, bytes]],
    writer: fl.FlightMetadataWriter,
) -> None:
    rows = size = 0
    for batch, metadata in batches:
        part = decode(metadata, Part)
        if part.abort:
            msg = "the client aborted the attempt"
            raise MisuseError(msg)
        if batch is None:
            continue
        stage.append(part.partition, batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if part.acknowledge:
            writer.write(encode(Received(rows, size)))
