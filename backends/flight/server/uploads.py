"""Uploads: rows that are staged, then committed or discarded.

Staged bytes are bounded per client and in total. Expired uploads are removed.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from streamfactory.arrowlog import Committed, Epoch, SoundStage, Staged
from streamfactory.arrowlog.writers import committed_before
from streamfactory.backends.flight.protocol import messages as m
from streamfactory.backends.flight.protocol.epochs import (
    committed_message,
    epoch_of,
    placed_message,
    retention_of,
)
from streamfactory.backends.flight.protocol.rows import INLINE, decode_rows
from streamfactory.backends.flight.server.logs import open_topic
from streamfactory.backends.flight.server.metrics import STAGED_EXPIRED
from streamfactory.spi import (
    FormatRefused,
    MisuseError,
    StreamError,
    Summary,
    TopicNotFound,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from streamfactory.arrowlog import Log, LogStore
    from streamfactory.backends.flight.server.limits import StagedBytes, UploadRules
    from streamfactory.backends.flight.server.metrics import Meters
    from streamfactory.spi import SoundRows

    Rows = Iterable[tuple[int, SoundRows]]
    """Partition and rows of each batch."""

_LONGEST_INTERVAL: Final = 30.0
"""Seconds between two searches for expired uploads."""

_SWEEP_SECONDS: Final = 3600.0
"""Seconds between two searches for uploads of killed servers."""

_logger = logging.getLogger("streamfactory.flight")


@final
@dataclass(slots=True)
class _Sealed:
    """A sealed attempt that is not committed yet."""

    client: str
    size: int
    log: Log
    staged: Staged
    at: float = field(default_factory=time.monotonic)
    deciding: int = 0
    """Commits and discards under way."""

    @property
    def key(self) -> tuple[str, str]:
        """Incarnation and attempt."""
        return self.log.incarnation, self.staged.attempt


@final
class Uploads:
    """Stages and commits the rows of writers. Thread-safe.

    Args:
        store: Holds the topics.
        meters: Records what is received and committed.
        staged: Bounds what is staged and not committed.
        rules: Settings of uploads and commits.
    """

    def __init__(
        self,
        store: LogStore,
        meters: Meters,
        staged: StagedBytes,
        rules: UploadRules,
    ) -> None:
        self.staged = staged
        self.meters = meters
        self._store = store
        self._rules = rules
        self._lock = threading.Lock()
        self._open: set[Upload] = set()
        self._sealed: dict[tuple[str, str], _Sealed] = {}
        """By incarnation and attempt: what clients say of them is not read."""

    def stage(self, log: Log, attempt: str, client: str) -> Upload:
        """Begin an attempt.

        Args:
            log: The topic.
            attempt: A fresh uuid.
            client: Key by which bytes are counted.

        Raises:
            MisuseError: misuse; the attempt was begun before.
        """
        upload = Upload(self, log, attempt, client)
        key = log.incarnation, attempt
        with self._lock:
            if key in self._sealed or key in {one.key for one in self._open}:
                msg = f"attempt {attempt!r} was begun before"
                raise MisuseError(msg, remedy="give each attempt a fresh uuid")
            self._open.add(upload)
        return upload

    def append(self, log: Log, sealed: Staged, rows: int) -> tuple[m.Placed, ...]:
        """Commit the rows of a plain put: one writer with one epoch.

        Returns:
            The offsets of the rows, as messages have them.
        """
        with self._deciding(log, [sealed]):
            try:
                committed = log.commit(Epoch(None, 0, [sealed], Summary(rows)))
            except StreamError:
                self._discard_undecided(log, [sealed])
                raise
        self.meters.committed(log.name, repeated=False)
        return placed_message(committed.placed)

    def commit_sealed(self, request: m.Commit, client: str) -> m.Committed:
        """Append sealed attempts in one step."""
        return self.commit(request, request, client, request.staged)

    def commit(
        self,
        writer: m.WriterInstance,
        epoch: m.EpochHeader,
        client: str,
        sealed: Sequence[m.Sealed] = (),
        rows: Rows | None = None,
    ) -> m.Committed:
        """Append the attempts of an epoch in one step.

        Args:
            writer: The writer and its topic.
            epoch: What is stored with the rows.
            client: Key by which bytes are counted.
            sealed: Attempts that were sealed before.
            rows: Those that came with the request.

        Raises:
            MisuseError: misuse; what an attempt staged no longer exists: it was
                decided, is too old, or was sealed by an earlier run of the server.
        """
        log = open_topic(self._store, writer.topic, writer.incarnation)
        inline: list[Staged] = []
        try:
            known = self._known(log, sealed)
            if known is None:
                return self._repeated(log, epoch_of(writer, epoch, ()))
            staged: list[Staged] = []
            for one in sealed:
                text = _inline(one)
                if text is not None:
                    parts = decode_rows(text, log.validator, self._rules.batch_bytes)
                    inline.append(self._staged_now(log, parts, client))
                staged.append(known[one.attempt] if text is None else inline[-1])
            if rows is not None:
                inline.append(self._staged_now(log, rows, client))
                staged.append(inline[-1])
            with self._deciding(log, staged):
                committed = log.commit(epoch_of(writer, epoch, staged))
        except BaseException:
            # The client repeats the call with the rows: the staged ones would remain.
            self._discard_undecided(log, inline)
            raise
        self.meters.committed(log.name, repeated=committed.held is not None)
        memory_ms = writer.writer_memory_ms
        memory = self._rules.writer_memory if memory_ms is None else memory_ms / 1000
        log.forget(memory, keep=writer.writer)
        if writer.retention is not None:
            log.retain(retention_of(writer.retention), {})
        return committed_message(committed)

    def _known(
        self, log: Log, sealed: Sequence[m.Sealed]
    ) -> Mapping[str, Staged] | None:
        """What attempts have sealed here, by attempt; None if one is unknown."""
        attempts = [one.attempt for one in sealed if _inline(one) is None]
        with self._lock:
            found = {a: self._sealed.get((log.incarnation, a)) for a in attempts}
        known = {a: one.staged for a, one in found.items() if one is not None}
        return known if len(known) == len(found) else None

    def _repeated(self, log: Log, epoch: Epoch) -> m.Committed:
        """The answer to an epoch whose attempts are unknown: it was committed before.

        Raises:
            MisuseError: misuse; it was not.
        """
        writers = log.remembered()
        known = None if epoch.writer is None else writers.get(epoch.writer)
        held = committed_before(epoch, known)
        if held is None:
            msg = f"what an attempt of epoch {epoch.number} staged no longer exists"
            raise MisuseError(msg, remedy="write the epoch again")
        self.meters.committed(log.name, repeated=True)
        return committed_message(Committed(held))

    def discard(self, request: m.Discard, client: str) -> m.Done:
        """Remove what an attempt sealed; nothing where it was decided before."""
        log = self._store.open(request.topic)
        sealed = self._sealed.get((log.incarnation, request.staged.attempt))
        if sealed is not None:
            with self._deciding(log, [sealed.staged]):
                log.discard(sealed.staged)
        return m.Done()

    def expire_until(self, stopping: threading.Event) -> None:
        """Remove expired uploads, until ``stopping`` is set."""
        interval = min(self._rules.timeout / 4, _LONGEST_INTERVAL)
        sweep_at = time.monotonic()
        while not stopping.wait(interval):
            try:
                self._expire()
                if time.monotonic() >= sweep_at:
                    sweep_at = time.monotonic() + _SWEEP_SECONDS
                    self._sweep(stopping)
            except Exception:
                _logger.exception("removing expired uploads failed and is retried")

    def _sweep(self, stopping: threading.Event) -> None:
        """Remove uploads of earlier servers, also of topics without commits."""
        for name in self._store.names():
            if stopping.is_set():
                return
            with suppress(StreamError):  # corrupt, or deleted meanwhile
                self._store.open(name).sweep()

    def seal(self, upload: Upload, staged: Staged) -> None:
        """Track an attempt until it is committed or discarded."""
        with self._lock:
            self._open.discard(upload)
            self._sealed[upload.key] = _Sealed(
                upload.client, upload.size, upload.log, staged
            )

    def forget(self, upload: Upload) -> None:
        """Stop tracking a discarded attempt."""
        with self._lock:
            self._open.discard(upload)
        self.staged.release(upload.client, upload.size)

    @contextmanager
    def _deciding(self, log: Log, decided: Sequence[Staged]) -> Iterator[None]:
        """Release the bytes of attempts that the block has committed or discarded."""
        keys = {(log.incarnation, one.attempt) for one in decided}
        with self._lock:
            taken = {key: self._sealed[key] for key in keys & self._sealed.keys()}
            for one in taken.values():
                one.deciding += 1
        released: list[_Sealed] = []
        try:
            yield
            released = list(taken.values())
        finally:
            with self._lock:
                for one in taken.values():
                    one.deciding -= 1
                # A commit that was repeated meanwhile may have been first.
                released = [one for one in released if self._is_kept(one)]
                for one in released:
                    del self._sealed[one.key]
        for one in released:
            self.staged.release(one.client, one.size)

    def _is_kept(self, one: _Sealed) -> bool:
        return self._sealed.get(one.key) is one

    def _staged_now(self, log: Log, parts: Rows, client: str) -> Staged:
        """Stage rows that were sent with their commit."""
        upload = self.stage(log, uuid.uuid4().hex, client)
        try:
            for partition, rows in parts:
                upload.append_sound(partition, rows)
            return upload.seal(carried=True)
        except BaseException:
            upload.discard()
            raise

    def _discard_undecided(self, log: Log, staged: Sequence[Staged]) -> None:
        """Remove expired attempts; committed ones stay."""
        for one in staged:
            with (
                suppress(StreamError),  # it stays until it expires
                self._deciding(log, [one]),
            ):
                log.discard(one)

    def _expire(self) -> None:
        oldest = time.monotonic() - self._rules.timeout
        with self._lock:
            uploads = list(self._open)
            logs = {e.log.incarnation: e.log for e in self._sealed.values()}
        for upload in uploads:
            if upload.expire(oldest):
                self._expired(upload.log, "an upload")
        deleted = {log.incarnation for log in logs.values() if not _exists(log)}
        with self._lock:
            over = [
                entry
                for entry in self._sealed.values()
                if not entry.deciding and _is_over(entry, oldest, deleted)
            ]
            for entry in over:
                del self._sealed[entry.key]
        for entry in over:
            self._remove(entry)

    def _remove(self, entry: _Sealed) -> None:
        try:
            entry.log.discard(entry.staged)
        except StreamError:
            with self._lock:
                self._sealed[entry.key] = entry  # the next time
            return
        self.staged.release(entry.client, entry.size)
        self._expired(entry.log, f"attempt {entry.staged.attempt!r}")

    def _expired(self, log: Log, what: str) -> None:
        self.meters.recorder.add(STAGED_EXPIRED)
        _logger.warning(
            "topic %r: %s was neither continued nor committed and is removed",
            log.name,
            what,
        )


@final
class Upload(SoundStage):
    """Rows of one attempt, counted while they are staged. Thread-safe."""

    def __init__(self, uploads: Uploads, log: Log, attempt: str, client: str) -> None:
        super().__init__(log.validator)
        self.log = log
        self.client = client
        self.key = log.incarnation, attempt
        self.size = 0
        """Number of staged bytes."""
        self.touched = time.monotonic()
        self._uploads = uploads
        self._stage = log.stage(attempt)
        self._lock = threading.Lock()
        self._ended = False

    def append_sound(self, partition: int, rows: SoundRows) -> None:
        """See `SoundStage.append_sound`.

        Raises:
            StorageFailed: permanent; the client, or all, have staged too much.
        """
        size = rows.nbytes
        with self._lock:
            self._check_open()
            self._uploads.staged.reserve(self.client, size)
            self.size += size
            self._stage.append_sound(partition, rows)
            self.touched = time.monotonic()
        self._uploads.meters.received(self.log.name, rows.num_rows, size)

    def seal(self, *, carried: bool = False) -> Staged:
        with self._lock:
            self._check_open()
            staged = self._stage.seal(carried=carried)
            self._ended = True
            self._uploads.seal(self, staged)
            return staged

    def discard(self) -> None:
        with self._lock:
            if not self._ended:
                self._discard()

    def _discard(self) -> None:
        self._ended = True
        self._uploads.forget(self)
        self._stage.discard()

    def expire(self, oldest: float) -> bool:
        """Discard the upload if it is idle since then; later appends are refused.

        Args:
            oldest: By the monotonic clock.
        """
        with self._lock:
            if self._ended or self.touched >= oldest:
                return False
            self._discard()
            return True

    def _check_open(self) -> None:
        if self._ended:
            msg = f"topic {self.log.name!r}: the upload was idle for too long"
            raise MisuseError(msg, remedy="write the epoch again")


def _is_over(entry: _Sealed, oldest: float, deleted: Collection[str]) -> bool:
    return entry.at < oldest or entry.log.incarnation in deleted


def _exists(log: Log) -> bool:
    try:
        log.bounds()
    except TopicNotFound:
        return False
    except StreamError:  # it cannot be read at the moment
        return True
    return True


def _inline(sealed: m.Sealed) -> str | None:
    """The rows sent with the message; None if they were uploaded before."""
    first = sealed.files[0] if len(sealed.files) == 1 else None
    if not isinstance(first, dict) or INLINE not in first:
        return None
    if not isinstance(first[INLINE], str):
        msg = "the member 'inline' of a file is not text"
        raise FormatRefused(msg, remedy="send an Arrow IPC stream in base64")
    return first[INLINE]
