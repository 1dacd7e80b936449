"""The receiver of one partition: a thread that reads the transport, and its queue."""

from __future__ import annotations

import threading
import time
import uuid
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, final

from streamfactory.arrowlog.writing import retention_of
from streamfactory.spi import (
    BatchState,
    ClosedError,
    ConfigError,
    Failed,
    Loss,
    MisuseError,
    PluginError,
    SchemaUnknown,
    SpoolFull,
    StreamError,
    TransientError,
    WriterFenced,
)
from streamfactory.wiring.core.clock import Clock
from streamfactory.wiring.core.defects import with_code
from streamfactory.wiring.core.guard import RetryPolicy
from streamfactory.wiring.core.guard import log as logger
from streamfactory.wiring.metrics.batches import StreamEnd
from streamfactory.wiring.metrics.registry import registry
from streamfactory.wiring.options.spool import store_config
from streamfactory.wiring.reading.acknowledging import Acknowledger
from streamfactory.wiring.reading.source import Source
from streamfactory.wiring.receiving.queueing import PartitionQueue, QueueSettings
from streamfactory.wiring.receiving.statistics import SpoolTally, Statistics
from streamfactory.wiring.spool.rows import delivered_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from streamfactory.arrowlog.disk import DiskLog
    from streamfactory.spi import Partition, StreamConfig
    from streamfactory.wiring.config.settled import Configured
    from streamfactory.wiring.controls.control import Control
    from streamfactory.wiring.core.throttle import Throttle
    from streamfactory.wiring.reading.reader import Reader

_TURN: Final = 0.2
"""Maximum seconds of one fetch, and so of the reaction to a stop."""
AGAIN: Final = 0.02
"""Seconds between the end of a sender and waiting for the next one."""
_FINAL: Final = (
    ConfigError,
    PluginError,
    MisuseError,
    SpoolFull,
    WriterFenced,
)
"""Errors that no later attempt can resolve."""


def is_final(error: StreamError) -> bool:
    """Whether no later attempt can succeed.

    After a sender that disconnects before it sends its schema there can be another one.
    """
    return isinstance(error, _FINAL) and not isinstance(error, SchemaUnknown)


def writer_prefix(stream: str) -> str:
    """Return the prefix of the writer ids of a stream's receivers.

    The partition follows.
    """
    return f"spool/{stream}/"


@final
class PartitionReceiver:
    """Receives one partition in its own thread, until it is stopped.

    Args:
        partition: Partition of the transport.
        log: The spool's log.
        transport: Configuration of the transport.
        shared: The source that found the schema, used until its sender ends; None if
            the schema was known.
        config: Configuration of the stream.
        stop: Ends it after received rows are committed.
        control: What users ask of the spool.
        throttle: Limits what all partitions receive per second.
    """

    def __init__(
        self,
        partition: Partition,
        log: DiskLog,
        transport: Configured,
        shared: Shared | None,
        config: StreamConfig,
        stop: threading.Event,
        control: Control,
        throttle: Throttle,
    ) -> None:
        self.partition = partition
        self.statistics = Statistics(partition)
        self.error: StreamError | None = None
        """The final error; None while it runs."""
        self._log = log
        self._transport = transport
        self._shared = None if shared is None else shared.use()
        self._source: Source | None = None
        self._queue: PartitionQueue | None = None
        """Of the current session."""
        self._stop = stop
        self._control = control
        self._throttle = throttle
        self._policy = RetryPolicy.of(config)
        self._pending: list[Loss] = []
        """Losses that are not stored yet: they are stored with the next row."""
        self._renewed = False
        """Whether the last sender has ended and no other has sent."""
        self._plan = QueueSettings(
            f"{writer_prefix(config.name)}{partition.id}",
            uuid.uuid4().hex,
            config["spool.full"],
            config.get("spool.full.bytes"),
            retention_of(store_config(config)),
            self._policy,
            StreamEnd.of(config),
        )
        tally = SpoolTally(
            config.name,
            partition,
            self.statistics,
            partial(log.held, partition.id),
            self._plan.most,
        )
        self._end_metrics = registry.track(self, tally)
        name = f"streamfactory-receive-{partition}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start; returns immediately."""
        self._thread.start()

    def finish(self, deadline: float) -> None:
        """Commit received rows, after a stop.

        Args:
            deadline: By the monotonic clock: when calls of the transport are no longer
                waited for. Commits are.
        """
        self._thread.join(max(0.0, deadline - time.monotonic()))
        queue = self._queue
        if self._thread.is_alive() and queue is not None:
            with suppress(StreamError):  # it is an error of the thread, too
                queue.close()

    def join(self, deadline: float) -> bool:
        """Wait for the end until a deadline, after `finish`; whether it has ended."""
        self._thread.join(max(0.0, deadline - time.monotonic()))
        self._end_metrics()
        return not self._thread.is_alive()

    def _run(self) -> None:
        failures, claimed = 0, False
        try:
            while not self._stop.is_set():
                before = self.statistics.report().commits
                try:
                    if not claimed:
                        self._log.claim(self._plan.writer, self._plan.instance)
                        claimed = True
                    self._session()
                    failures = 0
                except StreamError as error:
                    if self._stop.is_set() and isinstance(error, ClosedError):
                        return
                    if is_final(error):
                        self._give_up(error)
                        return
                    progress = self.statistics.report().commits > before
                    failures = 1 if progress else failures + 1
                    self._fail(error, failures)
                self._stop.wait(AGAIN)
        except Exception as error:  # noqa: BLE001 - shown in `error`
            logger.exception("partition %s: the receiver failed", self.partition)
            self.error = failure = internal_error(error)
            self.statistics.enter("failed", with_code(failure))
        finally:
            self._leave()
            if self.error is None:
                self.statistics.enter("stopped")

    def _give_up(self, error: StreamError) -> None:
        self.error = error
        state = "fenced" if isinstance(error, WriterFenced) else "failed"
        self.statistics.enter(state, with_code(error))
        logger.error("partition %s: receiving ended: %s", self.partition, error)

    def _fail(self, error: StreamError, failures: int) -> None:
        """Wait, longer each time, before the transport is opened again."""
        self.statistics.enter("waiting", with_code(error))
        level = logger.info if isinstance(error, TransientError) else logger.error
        level("partition %s: receiving is retried: %s", self.partition, error)
        if not isinstance(error, TransientError):
            self._leave()  # a source that refused would refuse again
        self._stop.wait(self._policy.pause(min(failures, 10)))

    # --- one sender --------------------------------------------------------------

    def _session(self) -> None:
        """Receive until the sender ends, an error occurs, or the stop is set."""
        source = self._opened()
        acknowledger = Acknowledger(source)
        queue = self._queue = PartitionQueue(
            self.partition,
            self._log,
            self._plan,
            self.statistics,
            acknowledger.acknowledge,
        )
        try:
            if not self._waited(queue):
                return
            # The last receiver may have ended between commit and acknowledgement.
            acknowledger.acknowledge(queue.position)
            reader, at = self._reader(source, queue)
            try:
                self._pump(reader, at, queue)
            finally:
                reader.close()
                # A sender that has ended cannot send again what a full spool blocks.
                while not self._stop.is_set() and not queue.drain(_TURN):
                    pass
        finally:
            queue.close()

    def _waited(self, queue: PartitionQueue) -> bool:
        """Wait while the spool is paused; False when the stop is set.

        The queue commits what was received.

        Raises:
            StreamError: The error that ended the queue.
        """
        while not self._stop.is_set() and (pause := self._control.pause) is not None:
            if queue.error is not None:
                raise queue.error
            self.statistics.enter("paused", str(pause))
            self._stop.wait(_TURN)
            if self._control.pause is None:
                self.statistics.enter("waiting")
        return not self._stop.is_set()

    def _reader(self, source: Source, queue: PartitionQueue) -> tuple[Reader, int]:
        info, stored = source.metadata.info(self.partition), queue.position
        if stored is None or self.partition not in stored:
            queue.begin(info.earliest, info.incarnation)
            # Stored before the first row is received.
            while not (self._stop.is_set() or queue.drain(_TURN)):
                pass
            return source.reader(self.partition, info=info), info.earliest
        incarnation = stored.incarnations.get(self.partition)
        if incarnation is None and self._renewed:
            # It is unknown whether the next sender continues the offsets.
            return source.reader(self.partition, info=info), info.earliest
        reader = source.reader(self.partition, info=info, incarnation=incarnation)
        return reader, stored[self.partition]

    def _pump(self, reader: Reader, at: int, queue: PartitionQueue) -> None:
        while self._waited(queue):
            batch = reader.fetch(at, timeout=_TURN)
            for loss in batch.losses:
                self._lose(loss)
            if batch.num_rows:
                while not queue.put(batch, self._pending, _TURN):
                    if self._stop.is_set():
                        return  # not acknowledged, and not stored
                self.statistics.enter("receiving")
                self._pending = []
                self._renewed = False
            elif queue.error is not None:
                raise queue.error
            at = batch.next_offset
            if batch.state is BatchState.END_OF_PARTITION:
                if isinstance(batch.end, Failed):
                    cause = f"the sender broke off: {batch.end.cause}"
                    self._lose(Loss(self.partition, at, None, cause))
                self._renewed = True
                self.statistics.enter("waiting", "the sender has ended")
                self._leave()
                return

    def _lose(self, loss: Loss) -> None:
        if self._renewed and loss.cause == "incarnation":
            return  # the last sender had ended: the offsets of another start again
        self._pending.append(loss)
        self.statistics.lost()

    # --- the transport -----------------------------------------------------------

    def _opened(self) -> Source:
        if self._shared is not None:
            return self._shared.source
        if self._source is None:
            schema = delivered_schema(self._log.schema, self._log.storage.location)
            self._source = open_transport(
                self._transport, schema, self._stop, self._throttle
            )
        return self._source

    def _leave(self) -> None:
        """Release the source: the next sender is read by a new one."""
        shared, self._shared = self._shared, None
        if shared is not None:
            shared.release()
        source, self._source = self._source, None
        if source is not None:
            source.close()


class Shared:
    """A source with several users; the last one closes it. Thread-safe."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._lock = threading.Lock()
        self._users = 1

    def use(self) -> Shared:
        """Add a user."""
        with self._lock:
            self._users += 1
        return self

    def release(self) -> None:
        """Remove a user; the last one closes the source."""
        with self._lock:
            self._users -= 1
            last = self._users == 0
        if last:
            self.source.close()


def open_transport(
    transport: Configured,
    schema: pa.Schema | None,
    stop: threading.Event,
    throttle: Throttle,
) -> Source:
    """Open the transport as a source.

    Args:
        transport: Its configuration.
        schema: Its schema, if known.
        stop: Cancels calls for metadata, and for the schema.
        throttle: Limits what is received.
    """
    source = Source(
        transport,
        client_id="streamfactory-spool",
        clock=Clock(),
        aside=False,
        source_schema=schema,
        cancelled=stop,
    )
    source.throttle = throttle
    return source


def internal_error(error: Exception) -> StreamError:
    """Return the error for a defect of the receiver."""
    msg = f"the receiver failed: {type(error).__name__}: {error}"
    return PluginError(msg)
