"""Writing to the server: rows of one attempt by ``DoPut``, staged until committed."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Final, final

from streamfactory.backends.flight.protocol.codec import decode, encode
from streamfactory.backends.flight.protocol.messages import Part, Received, Sealed
from streamfactory.backends.flight.server.logs import open_topic
from streamfactory.spi import BatchValidator, MisuseError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow.flight as fl

    from streamfactory.arrowlog import LogStore, SoundStage
    from streamfactory.backends.flight.protocol.messages import Stage
    from streamfactory.backends.flight.server.batches import Incoming, UncheckedRows
    from streamfactory.backends.flight.server.uploads import Uploads

_QUEUED: Final = 2
"""Maximum batches of a put that wait to be staged: bounds its memory."""


def receive_stage(
    store: LogStore,
    uploads: Uploads,
    wanted: Stage,
    incoming: Incoming,
    writer: fl.FlightMetadataWriter,
) -> None:
    """Stage the batches of a put, and send the result before the call ends."""
    log = open_topic(store, wanted.topic, wanted.incarnation)
    validator = BatchValidator(incoming.reader.schema)
    stage = uploads.stage(log, wanted.attempt, incoming.client)
    try:
        stager = Stager(stage, validator, writer)
        _receive(stager, incoming.received())
        sealed = stage.seal()
    except BaseException:
        stage.discard()
        raise
    files = tuple(dict(file) for file in sealed.files)
    writer.write(encode(Sealed(sealed.attempt, files)))


def _receive(
    stager: Stager, batches: Iterable[tuple[UncheckedRows | None, bytes]]
) -> None:
    """Stage all batches; the next one is received while one is staged."""
    try:
        for batch, metadata in batches:
            part = decode(metadata, Part)
            if part.abort:
                msg = "the client aborted the attempt"
                raise MisuseError(msg)
            if batch is not None:
                stager.put(part, batch)
        stager.finish()
    finally:
        stager.close()


@final
class Stager:
    """Validates and stages batches of one put in a thread, and acknowledges them.

    The thread of the call then does nothing but receive. One thread puts.

    Args:
        stage: Receives the batches.
        validator: Of the put's schema.
        writer: For acknowledgements; no other thread uses it until the end.
    """

    def __init__(
        self,
        stage: SoundStage,
        validator: BatchValidator,
        writer: fl.FlightMetadataWriter,
    ) -> None:
        self._stage = stage
        self._validator = validator
        self._writer = writer
        self._queue: queue.Queue[tuple[Part, UncheckedRows] | None] = queue.Queue(
            _QUEUED
        )
        self._failure: BaseException | None = None
        self._changed = threading.Condition()
        self._due = 0
        """Acknowledgements that were requested and not sent."""
        self._rows = self._bytes = 0
        """Rows staged so far."""
        self._thread: threading.Thread | None = None

    def put(self, part: Part, batch: UncheckedRows) -> None:
        """Queue a batch for staging; blocks while the queue is full.

        Blocks also while the client waits for an acknowledgement: it sends no more, and
        a refusal could not end a call that is received from.

        Raises:
            StreamError: Why a batch before was refused, or could not be staged.
        """
        self._raise_failure()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="stage", daemon=True)
            self._thread.start()
        self._queue.put((part, batch))
        if part.acknowledge:
            with self._changed:
                self._due += 1
                ahead = max(0, part.ahead)
                self._changed.wait_for(lambda: self._failure or self._due <= ahead)
            self._raise_failure()

    def finish(self) -> None:
        """Wait until all batches are staged.

        Raises:
            StreamError: Why one could not be.
        """
        self._end()
        self._raise_failure()

    def close(self) -> None:
        """Stop the thread; queued batches are dropped. May be called twice."""
        if self._thread is not None:
            self._failure = self._failure or MisuseError("the put has failed")
            self._end()

    def _end(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            self._queue.put(None)
            thread.join()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        while (found := self._queue.get()) is not None:
            if self._failure is None:  # else the call is about to end
                try:
                    self._append(*found)
                except BaseException as error:  # noqa: BLE001 - raised by the put
                    with self._changed:
                        self._failure = error
                        self._changed.notify()

    def _append(self, part: Part, batch: UncheckedRows) -> None:
        rows = batch.validated(self._validator)
        self._stage.append_sound(part.partition, rows)
        self._rows += rows.num_rows
        self._bytes += rows.nbytes
        if part.acknowledge:
            self._writer.write(encode(Received(self._rows, self._bytes)))
            with self._changed:
                self._due -= 1
                self._changed.notify()
