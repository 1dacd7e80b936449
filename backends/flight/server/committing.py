"""Commits of small epochs over one long ``DoExchange``: a message for each epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfactory.backends.flight.protocol import messages as m
from streamfactory.backends.flight.protocol.codec import decode, encode
from streamfactory.spi import ConnectionFailed, FormatRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    import pyarrow.flight as fl

    from streamfactory.backends.flight.server.batches import Incoming
    from streamfactory.backends.flight.server.uploads import Uploads
    from streamfactory.spi import SoundRows


def serve_commits(
    uploads: Uploads,
    wanted: m.CommitSession,
    incoming: Incoming,
    writer: fl.MetadataRecordBatchWriter,
    changing: Callable[[m.CommitRows], AbstractContextManager[None]],
) -> None:
    """Commit each epoch that the client sends, and answer it.

    An error ends the call: a client goes on with the action, or another call.

    Args:
        uploads: Stages and commits.
        wanted: The writer.
        incoming: Epochs.
        writer: Of answers.
        changing: Refuses commits while the server stops or without the right, and
            counts one that is under way.
    """
    try:
        for rows, metadata in incoming.sound():
            epoch = decode(metadata, m.CommitRows)
            with changing(epoch):
                parts = _parts(epoch, rows)
                answer = uploads.commit(wanted, epoch, incoming.client, rows=parts)
            writer.write_metadata(encode(answer))
    except ConnectionFailed:
        if (
            not incoming.context.is_cancelled()
        ):  # else the client has closed the session
            raise


def _parts(
    request: m.CommitRows, batch: SoundRows | None
) -> Iterator[tuple[int, SoundRows]]:
    """Partition and rows of each part.

    Raises:
        FormatRefused: permanent; the parts are not the batch.
    """
    total = 0 if batch is None else batch.num_rows
    if sum(part.rows for part in request.parts) != total or any(
        part.rows < 0 for part in request.parts
    ):
        msg = f"the parts of epoch {request.epoch} are not its batch of {total} rows"
        raise FormatRefused(msg, remedy="name the rows of each part of the batch")
    if batch is None:
        return
    start = 0
    for part in request.parts:
        yield part.partition, batch.slice(start, part.rows)
        start += part.rows
