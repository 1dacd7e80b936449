"""Rows that writers upload: staged, then committed or discarded.

Staged bytes are bounded for each client and in all. What nobody decides is removed.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from streamfactory.arrowlog import LogStage, Staged
from streamfactory.backends.flight.protocol import messages as m
from streamfactory.backends.flight.protocol.rows import decode_rows
from streamfactory.backends.flight.server.logs import (
    commit_message,
    open_topic,
    retention_of,
)
from streamfactory.backends.flight.server.metrics import STAGED_EXPIRED
from streamfactory.spi import (
    FormatRefused,
    MisuseError,
    Position,
    StreamError,
    Summary,
    TopicNotFound,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from streamfactory.arrowlog import Log, LogStore
    from streamfactory.backends.flight.server.limits import StagedBytes
    from streamfactory.backends.flight.server.metrics import Meters

_LONGEST_INTERVAL: Final = 30.0
"""Seconds between two looks for uploads that nobody decided."""

_logger = logging.getLogger("streamfactory.flight")


@final
@dataclass(slots=True)
class _Sealed:
    """An attempt that waits for its commit."""

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
        timeout: Seconds after which an upload that nobody continued, committed or
            discarded is removed.
    """

    def __init__(
        self, store: LogStore, meters: Meters, staged: StagedBytes, timeout: float
    ) -> None:
        self.staged = staged
        self.meters = meters
        self._store = store
        self._timeout = timeout
        self._lock = threading.Lock()
        self._open: set[Upload] = set()
        self._sealed: dict[tuple[str, str], list[_Sealed]] = {}
        """By incarnation and attempt."""

    def stage(self, log: Log, attempt: str, client: str) -> Upload:
        """Begin an attempt.

        Args:
            log: The topic.
            attempt: A fresh uuid.
            client: Whose bytes are counted together.
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
        placed: dict[int, range] = {}
        with self._deciding(log, [sealed.attempt]):
            try:
                log.commit(None, 0, [sealed], summary=Summary(rows), placed=placed)
            except StreamError:
                self._discard_undecided(log, [sealed])
                raise
        self.meters.committed(log.name, repeated=False)
        return m.placed(placed)

    def commit(self, request: m.Commit, client: str) -> m.Committed:
        """Append sealed attempts in one step."""
        log = open_topic(self._store, request.topic, request.incarnation)
        position = request.position
        placed: dict[int, range] = {}
        inline: list[Staged] = []
        try:
            staged = [self._staged(log, one, client, inline) for one in request.staged]
            with self._deciding(log, [one.attempt for one in staged]):
                held = log.commit(
                    request.writer,
                    request.epoch,
                    staged,
                    instance=request.instance,
                    summary=Summary(request.rows, request.sums or {}),
                    source_position=(
                        None if position is None else Position.from_json(position)
                    ),
                    replace=request.replace,
                    placed=placed,
                )
        except BaseException:
            # The client repeats the call with the rows: these would be left.
            self._discard_undecided(log, inline)
            raise
        self.meters.committed(log.name, repeated=held is not None)
        if request.writer_memory_ms is not None:
            log.forget(request.writer_memory_ms / 1000, keep=request.writer)
        if request.retention is not None:
            log.retain(retention_of(request.retention), {})
        return m.Committed(commit_message(held), m.placed(placed))

    def discard(self, request: m.Discard, client: str) -> m.Done:
        """Remove what an attempt sealed."""
        if _inline(request.staged) is not None:
            return m.Done()  # nothing is staged before the commit
        log = self._store.open(request.topic)
        with self._deciding(log, [request.staged.attempt]):
            log.discard(Staged(request.staged.attempt, request.staged.files))
        return m.Done()

    def expire_until(self, stopping: threading.Event) -> None:
        """Remove uploads that nobody decides, until ``stopping`` is set."""
        interval = min(self._timeout / 4, _LONGEST_INTERVAL)
        while not stopping.wait(interval):
            try:
                self._expire()
            except Exception:
                _logger.exception("expiry of uploads failed; it goes on")

    def seal(self, upload: Upload, staged: Staged) -> None:
        """Keep account of an attempt until it is decided."""
        key = (upload.log.incarnation, staged.attempt)
        entry = _Sealed(upload.client, upload.size, upload.log, staged)
        with self._lock:
            self._open.discard(upload)
            self._sealed.setdefault(key, []).append(entry)

    def forget(self, upload: Upload) -> None:
        """Keep no account of an attempt that was discarded."""
        with self._lock:
            self._open.discard(upload)
        self.staged.release(upload.client, upload.size)

    @contextmanager
    def _deciding(self, log: Log, attempts: Sequence[str]) -> Iterator[None]:
        """Release the bytes of attempts when the block has decided them."""
        keys = {(log.incarnation, attempt) for attempt in attempts}
        with self._lock:
            taken = {key: self._sealed.pop(key, []) for key in keys}
        try:
            yield
        except BaseException:
            with self._lock:
                for key, entries in taken.items():
                    if entries:
                        self._sealed.setdefault(key, []).extend(entries)
            raise
        self._release(entry for entries in taken.values() for entry in entries)

    def _release(self, entries: Iterator[_Sealed]) -> None:
        for entry in entries:
            self.staged.release(entry.client, entry.size)

    def _staged(
        self, log: Log, sealed: m.Sealed, client: str, inline: list[Staged]
    ) -> Staged:
        """What an attempt sealed; rows that came with the commit are staged now."""
        text = _inline(sealed)
        if text is None:
            return Staged(sealed.attempt, sealed.files)
        upload = self.stage(log, sealed.attempt, client)
        try:
            for partition, rows in decode_rows(text, log.schema):
                upload.append(partition, rows)
            staged = upload.seal()
        except BaseException:
            upload.discard()
            raise
        inline.append(staged)
        return staged

    def _discard_undecided(self, log: Log, staged: Sequence[Staged]) -> None:
        """Remove attempts that nobody will commit; committed ones stay."""
        for one in staged:
            with (
                suppress(StreamError),  # it stays until it expires
                self._deciding(log, [one.attempt]),
            ):
                log.discard(one)

    def _expire(self) -> None:
        oldest = time.monotonic() - self._timeout
        with self._lock:
            idle = [upload for upload in self._open if upload.touched < oldest]
            sealed = [e for entries in self._sealed.values() for e in entries]
        for upload in idle:
            upload.discard()  # its writer, if it comes back, is refused
            self._expired(upload.log, "an upload")
        for entry in sealed:
            with suppress(StreamError):
                if entry.at >= oldest and _exists(entry.log):
                    continue
                with self._deciding(entry.log, [entry.staged.attempt]):
                    entry.log.discard(entry.staged)
                self._expired(entry.log, f"attempt {entry.staged.attempt!r}")

    def _expired(self, log: Log, what: str) -> None:
        self.meters.recorder.add(STAGED_EXPIRED)
        _logger.warning(
            "topic %r: %s was neither continued nor committed and is removed",
            log.name,
            what,
        )


@final
class Upload(LogStage):
    """Rows of one attempt, counted while they are staged. Thread-safe."""

    def __init__(
        self, uploads: Uploads, log: Log, stage: LogStage, client: str
    ) -> None:
        self.log = log
        self.client = client
        self.size = 0
        """Bytes that are staged."""
        self.touched = time.monotonic()
        self._uploads = uploads
        self._stage = stage
        self._lock = threading.Lock()
        self._ended = False

    def append(self, partition: int, rows: pa.RecordBatch) -> None:
        """See `LogStage.append`.

        Raises:
            StorageFailed: permanent; the client, or all, have staged too much.
        """
        size = rows.nbytes
        with self._lock:
            self._check_open()
            self._uploads.staged.reserve(self.client, size)
            self.size += size
            self._stage.append(partition, rows)
            self.touched = time.monotonic()
        self._uploads.meters.received(self.log.name, rows.num_rows, size)

    def seal(self) -> Staged:
        with self._lock:
            self._check_open()
            staged = self._stage.seal()
            self._ended = True
            self._uploads.seal(self, staged)
            return staged

    def discard(self) -> None:
        with self._lock:
            if not self._ended:
                self._ended = True
                self._uploads.forget(self)
                self._stage.discard()

    def _check_open(self) -> None:
        if self._ended:
            msg = f"topic {self.log.name!r}: the upload was idle for too long"
            raise MisuseError(msg, remedy="write the epoch again")


def _exists(log: Log) -> bool:
    try:
        log.bounds()
    except TopicNotFound:
        return False
    return True


def _inline(sealed: m.Sealed) -> str | None:
    """The rows that came with the message; None where they were uploaded before."""
    first = sealed.files[0] if len(sealed.files) == 1 else None
    if not isinstance(first, dict) or "inline" not in first:
        return None
    if not isinstance(first["inline"], str):
        msg = "the member 'inline' of a file is not text"
        raise FormatRefused(msg)
    return first["inline"]
