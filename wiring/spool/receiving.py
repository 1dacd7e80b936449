"""Receivers: threads that read a transport and store it in a spool, exactly once.

The position of the transport is stored with each commit, so that whoever receives next
goes on there. A partition has one receiver: the last one to claim its writer in the
spool's log. An earlier one is refused at its next commit, and ends.
"""

from __future__ import annotations

import threading
import uuid
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, final

from streamfactory.arrowlog.disk.sharing import StoreHandle
from streamfactory.arrowlog.writing import retention_of
from streamfactory.spi import (
    BatchState,
    ClosedError,
    ConfigError,
    Failed,
    Loss,
    MisuseError,
    PartitionState,
    PluginError,
    SchemaUnknown,
    SpoolFull,
    StreamError,
    TopicNotFound,
    TransientError,
    WriterFenced,
)
from streamfactory.wiring.acknowledging import Acknowledger
from streamfactory.wiring.clock import Clock
from streamfactory.wiring.configure import Configured
from streamfactory.wiring.guard import RetryPolicy
from streamfactory.wiring.guard import log as logger
from streamfactory.wiring.plugins import PluginManager, default_manager
from streamfactory.wiring.source import Source
from streamfactory.wiring.spool.lane import Lane, LanePlan
from streamfactory.wiring.spool.options import PATH, store_config, transport_config
from streamfactory.wiring.spool.reading import transport_of
from streamfactory.wiring.spool.rows import (
    delivered_schema,
    stored_schema,
)
from streamfactory.wiring.spool.statistics import PartitionReport, Statistics

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from streamfactory.arrowlog.disk import DiskLog, DiskLogStore
    from streamfactory.spi import Partition, Position, StreamConfig
    from streamfactory.wiring.reader import Reader

_TURN: Final = 0.2
"""Seconds that one fetch waits at the most: a stop is noticed that soon."""
_AGAIN: Final = 0.02
"""Seconds between the end of a sender and the wait for the next one."""
_FINAL: Final = (
    ConfigError,
    PluginError,
    MisuseError,
    SpoolFull,
    WriterFenced,
)
"""What no later attempt can change."""


@final
class StreamReceiver:
    """Receives all partitions of one stream, in threads of its own.

    Args:
        configured: Of the stream, with ``spool.path``.
        plugins: Where the stream's types are found; the process's own by default.

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
        self._handle = StoreHandle(store_config(self.config))
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._receivers: dict[Partition, PartitionReceiver] = {}
        self._policy = RetryPolicy.of(self.config)
        self._error: StreamError | None = None
        self.trouble: StreamError | None = None
        """Why partitions could not be found, or the spool not be made, at the last
        attempt; another one follows."""
        self._ready = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def store(self) -> DiskLogStore:
        """Where the spool is; open until the receiver is closed."""
        return self._handle.get()

    @property
    def error(self) -> StreamError | None:
        """What ended the stream's receiver, or one of its partitions'; else None."""
        if self._error is not None:
            return self._error
        with self._lock:
            errors = [receiver.error for receiver in self._receivers.values()]
        return next((error for error in errors if error is not None), None)

    @property
    def ended(self) -> bool:
        """Whether nothing will be received any more."""
        if self._error is not None:
            return True
        with self._lock:
            receivers = list(self._receivers.values())
        return bool(receivers) and all(r.error is not None for r in receivers)

    def start(self) -> None:
        """Begin to receive; returns at once."""
        name = f"streamfactory-spool-{self.config.name}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def wait_ready(self, timeout: float) -> bool:
        """Wait until each partition has a receiver; False where time was up before."""
        return self._ready.wait(timeout)

    def reports(self) -> Sequence[PartitionReport]:
        """One for each partition, by id."""
        with self._lock:
            return [self._receivers[p].statistics.report() for p in self._sorted()]

    def stop(self) -> None:
        """Begin to stop; `close` waits for it."""
        self._stop.set()

    def close(self) -> None:
        """Stop receiving, and commit what was received. Twice is allowed."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            receivers = list(self._receivers.values())
        for receiver in receivers:
            receiver.join()
        self._handle.close()

    def _sorted(self) -> list[Partition]:
        return sorted(self._receivers)

    # --- the stream's own thread -----------------------------------------------------

    def _run(self) -> None:
        failures = 0
        while not self._stop.is_set():
            try:
                self._supervise()
            except StreamError as error:
                if is_final(error):
                    self._error = error
                    logger.error("stream %r: not received: %s", self.config.name, error)
                    return
                failures += 1
                self.trouble = error
                # Waiting for the first sender is no failure to speak of.
                quiet = isinstance(error, TransientError)
                level = logger.info if quiet else logger.warning
                level("stream %r: receiving again: %s", self.config.name, error)
                self._stop.wait(max(_AGAIN, self._policy.pause(min(failures, 10))))
            except Exception as error:  # noqa: BLE001 - shown in `error`
                logger.exception("stream %r: the receiver failed", self.config.name)
                self._error = _internal(error)
                return

    def _supervise(self) -> None:
        """Find partitions, and start a receiver for each; until the stop."""
        with ExitStack() as stack:
            schema = self._known_schema()
            shared = None
            with ExitStack() as looking:
                scout = _open(self._transport, schema)
                looking.callback(scout.close)
                log = self._open_log(scout)
                self._refuse_foreign(log)
                if schema is None and "schema" not in self.config:
                    # It was looked for: its connections may hold rows already.
                    looking.pop_all()
                    shared = _Shared(scout)
                    stack.callback(shared.release)
                self._begin_all(scout, log, shared)
        refresh = self.config["metadata.refresh.millis"] / 1000
        while not self._stop.wait(refresh):
            # Another source: one that stays open may hold what the receivers need.
            source = _open(self._transport, self._known_schema())
            try:
                self._begin_all(source, log, None)
            finally:
                source.close()

    def _begin_all(self, source: Source, log: DiskLog, shared: _Shared | None) -> None:
        """Begin to receive the partitions that are not received yet."""
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

    def _begin(
        self, partition: Partition, log: DiskLog, shared: _Shared | None
    ) -> None:
        with self._lock:
            if partition in self._receivers:
                return
            receiver = PartitionReceiver(
                partition, log, self._transport, shared, self.config, self._stop
            )
            self._receivers[partition] = receiver
        receiver.start()

    def _known_schema(self) -> pa.Schema | None:
        """The schema of the spool; None where there is none yet."""
        with suppress(TopicNotFound):
            log = self._handle.get().open(self._topic)
            return delivered_schema(log.schema, self.config[PATH])
        return None

    def _open_log(self, scout: Source) -> DiskLog:
        """The spool's log, created where it is not there."""
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
        except MisuseError:  # another receiver was first
            return store.open(self._topic)

    def _refuse_foreign(self, log: DiskLog) -> None:
        """Refuse a spool that another stream is received into.

        Raises:
            ConfigError: config.
        """
        delivered_schema(log.schema, self.config[PATH])
        mine = writer_prefix(self.config.name)
        others = [name for name in log.writers() if not name.startswith(mine)]
        if others:
            other = others[0].removeprefix("spool/").rpartition("/")[0]
            msg = (
                f"the spool in {self.config[PATH]} is of the stream {other!r}, not of "
                f"{self.config.name!r}"
            )
            remedy = f"give each stream a folder of its own: {PATH}"
            raise ConfigError(msg, stream=self.config.name, remedy=remedy)

    @property
    def _topic(self) -> str:
        if "topic.name" not in self.config:
            msg = "a stream of several topics cannot be received into a spool"
            remedy = "name one topic: topic.name"
            raise ConfigError(msg, stream=self.config.name, remedy=remedy)
        return self.config.topic


def is_final(error: StreamError) -> bool:
    """Whether no later attempt can succeed.

    A sender that leaves before its schema came is followed by another one.
    """
    return isinstance(error, _FINAL) and not isinstance(error, SchemaUnknown)


def writer_prefix(stream: str) -> str:
    """What the writer ids of a stream's receivers begin with; the partition follows."""
    return f"spool/{stream}/"


@final
class PartitionReceiver:
    """Receives one partition, in a thread of its own, until it is stopped.

    Args:
        partition: Of the transport.
        log: The spool's.
        transport: How the transport is read.
        shared: The source that found the schema; used until its sender ends. None
            where it was not looked for.
        config: Of the stream.
        stop: Ends it, once what was received is committed.
    """

    def __init__(
        self,
        partition: Partition,
        log: DiskLog,
        transport: Configured,
        shared: _Shared | None,
        config: StreamConfig,
        stop: threading.Event,
    ) -> None:
        self.partition = partition
        self.statistics = Statistics(partition)
        self.error: StreamError | None = None
        """What has ended it for good; None while it goes on."""
        self._log = log
        self._transport = transport
        self._shared = None if shared is None else shared.use()
        self._source: Source | None = None
        self._stop = stop
        self._policy = RetryPolicy.of(config)
        self._pending: list[Loss] = []
        """Losses that no row was stored behind yet."""
        self._renewed = False
        """Whether the last sender has ended, and nothing came since."""
        self._plan = LanePlan(
            f"{writer_prefix(config.name)}{partition.id}",
            uuid.uuid4().hex,
            config["spool.full"],
            config.get("spool.full.bytes"),
            retention_of(store_config(config)),
            self._policy,
        )
        name = f"streamfactory-receive-{partition}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def join(self) -> None:
        """Wait for the end, after the stop was set."""
        self._thread.join()

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
                self._stop.wait(_AGAIN)
        except Exception as error:  # noqa: BLE001 - shown in `error`
            logger.exception("partition %s: the receiver failed", self.partition)
            self.error = _internal(error)
            self.statistics.enter("failed", str(error))
        finally:
            self._leave()
            if self.error is None:
                self.statistics.enter("stopped")

    def _give_up(self, error: StreamError) -> None:
        self.error = error
        state = "fenced" if isinstance(error, WriterFenced) else "failed"
        self.statistics.enter(state, str(error))
        logger.error("partition %s: received no more: %s", self.partition, error)

    def _fail(self, error: StreamError, failures: int) -> None:
        """Wait, longer each time, before the transport is opened again."""
        self.statistics.enter("waiting", str(error))
        level = logger.info if isinstance(error, TransientError) else logger.error
        level("partition %s: receiving again: %s", self.partition, error)
        if not isinstance(error, TransientError):
            self._leave()  # a source that refused keeps refusing
        self._stop.wait(self._policy.pause(min(failures, 10)))

    # --- one sender --------------------------------------------------------------

    def _session(self) -> None:
        """Receive until the sender ends, something fails, or the stop is set."""
        source = self._opened()
        acknowledger = Acknowledger(source)
        lane = Lane(
            self.partition,
            self._log,
            self._plan,
            self.statistics,
            acknowledger.acknowledge,
        )
        try:
            # The last receiver may have ended between its commit and this.
            acknowledger.acknowledge(lane.position)
            reader, at = self._reader(source, lane.position)
            try:
                self._pump(reader, at, lane)
            finally:
                reader.close()
        finally:
            lane.close()

    def _reader(self, source: Source, stored: Position | None) -> tuple[Reader, int]:
        info = source.metadata.info(self.partition)
        if stored is None or self.partition not in stored:
            return source.reader(self.partition, info=info), info.earliest
        incarnation = stored.incarnations.get(self.partition)
        if incarnation is None and self._renewed:
            # Whether the next sender goes on counting cannot be known.
            return source.reader(self.partition, info=info), info.earliest
        reader = source.reader(self.partition, info=info, incarnation=incarnation)
        return reader, stored[self.partition]

    def _pump(self, reader: Reader, at: int, lane: Lane) -> None:
        while not self._stop.is_set():
            batch = reader.fetch(at, timeout=_TURN)
            for loss in batch.losses:
                self._lose(loss)
            if batch.num_rows:
                while not lane.put(batch, self._pending, _TURN):
                    if self._stop.is_set():
                        return  # not acknowledged, and not stored
                self._pending = []
                self._renewed = False
            elif lane.error is not None:
                raise lane.error
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
            return  # the last sender had ended: another one counts from its beginning
        self._pending.append(loss)
        self.statistics.lost()

    # --- the transport -----------------------------------------------------------

    def _opened(self) -> Source:
        if self._shared is not None:
            return self._shared.source
        if self._source is None:
            schema = delivered_schema(self._log.schema, self._log.storage.location)
            self._source = _open(self._transport, schema)
        return self._source

    def _leave(self) -> None:
        """Give the source back: the next sender is read by another one."""
        shared, self._shared = self._shared, None
        if shared is not None:
            shared.release()
        source, self._source = self._source, None
        if source is not None:
            source.close()


class _Shared:
    """A source with several users; the last one closes it. Thread-safe."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._lock = threading.Lock()
        self._users = 1

    def use(self) -> _Shared:
        with self._lock:
            self._users += 1
        return self

    def release(self) -> None:
        with self._lock:
            self._users -= 1
            last = self._users == 0
        if last:
            self.source.close()


def _transport(configured: Configured, plugins: PluginManager) -> Configured:
    """The transport behind a spool, its messages left as they are."""
    config = transport_config(configured.config)
    factory = transport_of(configured.backend)
    backend = replace(
        plugins.backend(config.type), consumer_factory=factory, producer_factory=None
    )
    decoder = None if config.decoder is None else plugins.decoder(config.decoder)
    return Configured(config, backend, decoder)


def _open(transport: Configured, schema: pa.Schema | None) -> Source:
    """The transport as a source; with its schema where that is known."""
    return Source(
        transport,
        client_id="streamfactory-spool",
        clock=Clock(),
        aside=False,
        source_schema=schema,
    )


def _internal(error: Exception) -> StreamError:
    msg = f"the receiver failed: {type(error).__name__}: {error}"
    return PluginError(msg)
