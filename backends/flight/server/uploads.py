"""Uploads: rows that are staged, then committed or discarded.

Staged bytes are bounded per client and in total. Expired uploads are removed.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from streamfactory.arrowlog import Epoch, SoundStage, Staged
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
    from streamfactory.backends.flight.server.limits import StagedBytes
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


@final
class Uploads:
    """Stages and commits the rows of writers. Thread-safe.

    Args:
        store: Holds the topics.
        meters: Records what is received and committed.
        staged: Bounds what is staged and not committed.
        timeout: Seconds after which an upload that was not continued, committed or
            discarded is removed.
        batch_bytes: Maximum bytes of the rows that travel with a commit, decompressed.
    """

    def __init__(
        self,
        store: LogStore,
        meters: Meters,
        staged: StagedBytes,
        timeout: float,
        batch_bytes: int,
    ) -> None:
        self.staged = staged
        self.meters = meters
        self._store = store
        self._timeout = timeout
        self._batch_bytes = batch_bytes
        self._lock = threading.Lock()
        self._open: set[Upload] = set()
        self._sealed: dict[tuple[str, str], list[_Sealed]] = {}
        """By incarnation and attempt."""

    def stage(self, log: Log, attempt: str, client: str) -> Upload:
        """Begin an attempt.

        Args:
            log: The topic.
            attempt: A fresh uuid.
            client: Key by which bytes are counted.
        """
        upload = Upload(self, log, log.stage(attempt), client)
        with self._lock:
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
        rows: Mapping[str, Rows] | None = None,
    ) -> m.Committed:
        """Append the attempts of an epoch in one step.

        Args:
            writer: The writer and its topic.
            epoch: What is stored with the rows.
            client: Key by which bytes are counted.
            sealed: Attempts that were sealed before.
            rows: Of attempts that came with the request, by attempt.
        """
        log = open_topic(self._store, writer.topic, writer.incarnation)
        inline: list[Staged] = []
        try:
            staged = [self._staged(log, one, client, inline) for one in sealed]
            for attempt, parts in (rows or {}).items():
                inline.append(self._staged_now(log, attempt, parts, client))
                staged.append(inline[-1])
            with self._deciding(log, staged):
                committed = log.commit(epoch_of(writer, epoch, staged))
        except BaseException:
            # The client repeats the call with the rows: the staged ones would remain.
            self._discard_undecided(log, inline)
            raise
        self.meters.committed(log.name, repeated=committed.held is not None)
        if writer.writer_memory_ms is not None:
            log.forget(writer.writer_memory_ms / 1000, keep=writer.writer)
        if writer.retention is not None:
            log.retain(retention_of(writer.retention), {})
        return committed_message(committed)

    def discard(self, request: m.Discard, client: str) -> m.Done:
        """Remove what an attempt sealed."""
        if _inline(request.staged) is not None:
            return m.Done()  # nothing is staged before the commit
        log = self._store.open(request.topic)
        staged = Staged(request.staged.attempt, request.staged.files)
        with self._deciding(log, [staged]):
            log.discard(staged)
        return m.Done()

    def expire_until(self, stopping: threading.Event) -> None:
        """Remove expired uploads, until ``stopping`` is set."""
        interval = min(self._timeout / 4, _LONGEST_INTERVAL)
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
            self._keep(_Sealed(upload.client, upload.size, upload.log, staged))

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
            taken = [e for key in keys for e in self._sealed.pop(key, ())]
        try:
            yield
        except BaseException:
            with self._lock:
                for entry in taken:
                    self._keep(entry)
            raise
        names = _names(decided)
        for entry in taken:
            if not _names([entry.staged]) <= names:
                # The client named other files than it uploaded: the uploaded ones would
                # remain.
                with suppress(StreamError):
                    entry.log.discard(entry.staged)
            self.staged.release(entry.client, entry.size)

    def _keep(self, entry: _Sealed) -> None:
        """Track an attempt; with the lock held."""
        key = (entry.log.incarnation, entry.staged.attempt)
        self._sealed.setdefault(key, []).append(entry)

    def _staged(
        self, log: Log, sealed: m.Sealed, client: str, inline: list[Staged]
    ) -> Staged:
        """The sealed files of an attempt; rows sent with the commit are staged now."""
        text = _inline(sealed)
        if text is None:
            return Staged(sealed.attempt, sealed.files)
        parts = decode_rows(text, log.validator, self._batch_bytes)
        inline.append(self._staged_now(log, sealed.attempt, parts, client))
        return inline[-1]

    def _staged_now(self, log: Log, attempt: str, parts: Rows, client: str) -> Staged:
        """Stage rows that were sent with their commit."""
        upload = self.stage(log, attempt, client)
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
        oldest = time.monotonic() - self._timeout
        with self._lock:
            uploads, logs = list(self._open), self._logs()
        for upload in uploads:
            if upload.expire(oldest):
                self._expired(upload.log, "an upload")
        deleted = {log.incarnation for log in logs if not _exists(log)}
        with self._lock:
            # Attempts that are being committed are not among them.
            entries = [e for key in list(self._sealed) for e in self._sealed.pop(key)]
            for entry in entries:
                if not _is_over(entry, oldest, deleted):
                    self._keep(entry)
        for entry in entries:
            if _is_over(entry, oldest, deleted):
                self._remove(entry)

    def _logs(self) -> list[Log]:
        """Topics that have sealed attempts; with the lock held."""
        entries = (e for some in self._sealed.values() for e in some)
        return list({e.log.incarnation: e.log for e in entries}.values())

    def _remove(self, entry: _Sealed) -> None:
        try:
            entry.log.discard(entry.staged)
        except StreamError:
            with self._lock:
                self._keep(entry)  # the next time
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

    def __init__(
        self, uploads: Uploads, log: Log, stage: SoundStage, client: str
    ) -> None:
        super().__init__(log.validator)
        self.log = log
        self.client = client
        self.size = 0
        """Number of staged bytes."""
        self.touched = time.monotonic()
        self._uploads = uploads
        self._stage = stage
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


def _names(staged: Iterable[Staged]) -> set[str]:
    """Files of attempts, by name."""
    return {
        str(file.get("name"))
        for one in staged
        for file in one.files
        if isinstance(file, dict)
    }


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
