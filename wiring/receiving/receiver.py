"""Receivers: threads that read a transport and store it in a spool, exactly once.

The position of the transport is stored with each commit, where the next receiver
continues. A partition has one receiver: the last one that claimed its writer in the
spool's log. Earlier ones fail at their next commit, and end.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, final

from streamfactory.arrowlog.disk.sharing import disk_handle
from streamfactory.spi import (
    ClosedError,
    ConfigError,
    MisuseError,
    PartitionState,
    StreamError,
    TopicNotFound,
    TransientError,
)
from streamfactory.wiring.config.settled import Configured
from streamfactory.wiring.controls.control import Control
from streamfactory.wiring.controls.states import spool_job
from streamfactory.wiring.core.clock import Clock
from streamfactory.wiring.core.guard import RetryPolicy
from streamfactory.wiring.core.guard import log as logger
from streamfactory.wiring.core.throttle import Rate, Throttle
from streamfactory.wiring.options.spool import PATH, store_config, transport_config
from streamfactory.wiring.plugins.manager import PluginManager, default_manager
from streamfactory.wiring.receiving.partition import (
    AGAIN,
    PartitionReceiver,
    Shared,
    internal_error,
    is_final,
    open_transport,
    writer_prefix,
)
from streamfactory.wiring.spool.reading import transport_of
from streamfactory.wiring.spool.rows import (
    delivered_schema,
    stored_schema,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from streamfactory.arrowlog.disk import DiskLog, DiskLogStore
    from streamfactory.spi import Partition
    from streamfactory.wiring.reading.source import Source
    from streamfactory.wiring.receiving.statistics import PartitionReport

_GRACE: Final = 1.0
"""Seconds, after the stop, for calls of the transport that are under way. A client that
connects to an unreachable server may block for as long as its timeout."""


@final
class StreamReceiver:
    """Receives all partitions of one stream, in its own threads.

    Args:
        configured: Configuration of the stream, with ``spool.path``.
        plugins: Finds types; by default those of the process.

    Raises:
        ConfigError: config; the stream has no spool.
    """

    def __init__(
        self, configured: Configured, *, plugins: PluginManager | None = None
    ) -> None:
        transport = transport_of(configured.backend)
        if transport is None:
            msg = "the stream has no spool"
            raise ConfigError(
                msg, stream=configured.config.name, remedy=f"set {PATH} to a folder"
            )
        self.config = configured.config
        self._transport = _transport(configured, plugins or default_manager())
        self._handle = disk_handle(store_config(self.config))
        self._control = Control(spool_job(self.config.name))
        self._throttle = Throttle(partial(self._control.rate, Rate()), Clock())
        self._stop = threading.Event()
        self._stop_by = 0.0
        """When calls of the transport are no longer waited for, after the stop."""
        self._lock = threading.Lock()
        self._receivers: dict[Partition, PartitionReceiver] = {}
        self._policy = RetryPolicy.of(self.config)
        self._error: StreamError | None = None
        self.trouble: StreamError | None = None
        """Why the last attempt to find partitions or create the spool failed; it is
        retried."""
        self._ready = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def store(self) -> DiskLogStore:
        """The store of the spool; open until the receiver is closed."""
        return self._handle.get()

    @property
    def error(self) -> StreamError | None:
        """The error that ended the receiver or one of its partitions; else None."""
        if self._error is not None:
            return self._error
        with self._lock:
            errors = [receiver.error for receiver in self._receivers.values()]
        return next((error for error in errors if error is not None), None)

    @property
    def ended(self) -> bool:
        """Whether receiving has ended."""
        if self._error is not None:
            return True
        with self._lock:
            receivers = list(self._receivers.values())
        return bool(receivers) and all(r.error is not None for r in receivers)

    def start(self) -> None:
        """Start receiving; returns immediately."""
        name = f"streamfactory-spool-{self.config.name}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def wait_ready(self, timeout: float) -> bool:
        """Wait until each partition has a receiver, or receiving ended with `error`.

        Returns:
            False after the timeout.
        """
        return self._ready.wait(timeout)

    def reports(self) -> Sequence[PartitionReport]:
        """Return a report per partition, by id."""
        with self._lock:
            return [self._receivers[p].statistics.report() for p in self._sorted()]

    def stop(self) -> None:
        """Start to stop; `close` waits for it. May be called twice."""
        with self._lock:
            if not self._stop.is_set():
                self._stop_by = time.monotonic() + _GRACE
                self._stop.set()

    def close(self) -> None:
        """Stop receiving, and commit received rows. May be called twice.

        Waits for the commits. A call of the transport that does not return within a
        second or two is left to its thread, which ends with the call.
        """
        self.stop()
        with self._lock:
            receivers = list(self._receivers.values())
        for receiver in receivers:
            receiver.finish(self._stop_by)
        late = max(self._stop_by, time.monotonic() + _GRACE)
        ended = [receiver.join(late) for receiver in receivers]
        if self._thread is not None:
            self._thread.join(max(0.0, late - time.monotonic()))
            ended.append(not self._thread.is_alive())
        if not all(ended):
            what = "stream %r: a call of the transport has not returned"
            logger.warning(what, self.config.name)
        self._handle.close()

    def _sorted(self) -> list[Partition]:
        return sorted(self._receivers)

    # --- the stream's own thread -----------------------------------------------------

    def _run(self) -> None:
        try:
            self._retry()
        finally:
            self._ready.set()

    def _retry(self) -> None:
        """Supervise until the stop, or until an error that is final."""
        failures = 0
        while not self._stop.is_set():
            try:
                self._supervise()
            except StreamError as error:
                if self._stop.is_set() and isinstance(error, ClosedError):
                    return
                if is_final(error):
                    self._error = error
                    logger.error(
                        "stream %r: receiving ended: %s", self.config.name, error
                    )
                    return
                failures += 1
                self.trouble = error
                # Waiting for the first sender is not a failure.
                quiet = isinstance(error, TransientError)
                level = logger.info if quiet else logger.warning
                level("stream %r: receiving is retried: %s", self.config.name, error)
                self._stop.wait(max(AGAIN, self._policy.pause(min(failures, 10))))
            except Exception as error:  # noqa: BLE001 - shown in `error`
                logger.exception("stream %r: the receiver failed", self.config.name)
                self._error = internal_error(error)
                return

    def _supervise(self) -> None:
        """Find partitions and start a receiver for each, until the stop."""
        with ExitStack() as stack:
            schema = self._known_schema()
            shared = None
            with ExitStack() as looking:
                scout = self._open_transport(schema)
                looking.callback(scout.close)
                log = self._open_log(scout)
                self._refuse_foreign(log)
                if schema is None and "schema" not in self.config:
                    # This source found the schema: its connections may have rows
                    # already.
                    looking.pop_all()
                    shared = Shared(scout)
                    stack.callback(shared.release)
                self._begin_all(scout, log, shared)
        refresh = self.config["metadata.refresh.millis"] / 1000
        while not self._stop.wait(refresh):
            # A new source: an open one may hold a connection that the receivers need.
            source = self._open_transport(self._known_schema())
            try:
                self._begin_all(source, log, None)
            finally:
                source.close()

    def _begin_all(self, source: Source, log: DiskLog, shared: Shared | None) -> None:
        """Start receivers of partitions that have none."""
        infos = source.metadata.partitions()
        there = [i for i in infos if i.state is not PartitionState.VANISHED]
        partitions = [info.partition for info in there]
        wanted = max((p.id for p in partitions), default=0) + 1
        if wanted > len(log.bounds()):
            log.grow(wanted)
        for partition in partitions:
            self._begin(partition, log, shared)
        self.trouble = None
        self._ready.set()

    def _begin(self, partition: Partition, log: DiskLog, shared: Shared | None) -> None:
        with self._lock:
            # After the stop nothing would end it.
            if self._stop.is_set() or partition in self._receivers:
                return
            receiver = PartitionReceiver(
                partition,
                log,
                self._transport,
                shared,
                self.config,
                self._stop,
                self._control,
                self._throttle,
            )
            self._receivers[partition] = receiver
        receiver.start()

    def _open_transport(self, schema: pa.Schema | None) -> Source:
        return open_transport(self._transport, schema, self._stop, self._throttle)

    def _known_schema(self) -> pa.Schema | None:
        """Return the schema of the spool; None if it does not exist yet."""
        with suppress(TopicNotFound):
            log = self._handle.get().open(self._topic)
            return delivered_schema(log.schema, self.config[PATH])
        return None

    def _open_log(self, scout: Source) -> DiskLog:
        """Open the spool's log; create it if it does not exist."""
        store = self._handle.get()
        try:
            return store.open(self._topic)
        except TopicNotFound:
            pass
        wanted = stored_schema(scout.source_schema)
        infos = scout.metadata.partitions()
        count = max((info.partition.id for info in infos), default=0) + 1
        try:
            return store.create(self._topic, wanted, count)
        except MisuseError:  # another receiver has created it
            return store.open(self._topic)

    def _refuse_foreign(self, log: DiskLog) -> None:
        """Refuse the spool of another stream.

        Raises:
            ConfigError: config.
        """
        delivered_schema(log.schema, self.config[PATH])
        mine = writer_prefix(self.config.name)
        others = [name for name in log.writers() if not name.startswith(mine)]
        if others:
            other = others[0].removeprefix("spool/").rpartition("/")[0]
            msg = (
                f"the spool in {self.config[PATH]} belongs to stream {other!r}, not to "
                f"{self.config.name!r}"
            )
            remedy = f"use another folder for each stream: {PATH}"
            raise ConfigError(msg, stream=self.config.name, remedy=remedy)

    @property
    def _topic(self) -> str:
        if "topic.name" not in self.config:
            msg = "a stream of several topics cannot be received into a spool"
            remedy = "set topic.name to one topic"
            raise ConfigError(msg, stream=self.config.name, remedy=remedy)
        return self.config.topic


def _transport(configured: Configured, plugins: PluginManager) -> Configured:
    """Return the configuration of a spool's transport, without decoding."""
    config = transport_config(configured.config)
    factory = transport_of(configured.backend)
    backend = replace(
        plugins.backend(config.type), consumer_factory=factory, producer_factory=None
    )
    decoder = None if config.decoder is None else plugins.decoder(config.decoder)
    return Configured(config, backend, decoder)
