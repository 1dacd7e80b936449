"""The file of `durable`: frames, each whole or not there.

A frame is a length, a checksum, a line of JSON, and Arrow IPC. The first one has the
incarnation, the schema and the number of partitions; every other one is a commit, a
claim, a growth or a retention, written and fsynced under a lock. A torn tail is
ignored by readers and overwritten by the next writer.

The file may be on a server that goes away: see `session_of`.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streamfactory.spi import (
    LastCommit,
    PermanentError,
    Position,
    Summary,
    TopicNotFound,
    WriterFenced,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import IO

_FRAME: Final = struct.Struct(">II")


def session_of(path: str) -> str | None:
    """The session of the server that has a file; None for a file without a server.

    The server is a file beside it, ``<path>.server``, with the name of its session. It
    is empty while the server is away.

    Raises:
        ConnectionRefusedError: The server is away.
    """
    try:
        session = Path(f"{path}.server").read_text()
    except FileNotFoundError:
        return None
    if not session:
        msg = f"the server of {path!r} is away"
        raise ConnectionRefusedError(msg)
    return session


def pack(head: Mapping[str, Any], body: bytes = b"") -> bytes:
    """A frame."""
    payload = json.dumps(head).encode() + b"\n" + body
    return _FRAME.pack(len(payload), zlib.crc32(payload)) + payload


def unpack(data: bytes) -> Iterator[tuple[dict[str, Any], bytes, int]]:
    """The whole frames at the beginning of ``data``: head, body, length."""
    at = 0
    while len(data) - at >= _FRAME.size:
        length, checksum = _FRAME.unpack_from(data, at)
        begin, end = at + _FRAME.size, at + _FRAME.size + length
        if zlib.crc32(data[begin:end]) != checksum:
            if end < len(data):
                msg = f"the file is corrupt: a frame of {length} bytes is damaged"
                raise PermanentError(msg)
            return
        head, _, body = data[begin:end].partition(b"\n")
        yield json.loads(head), body, end - at
        at = end


def to_ipc(schema: pa.Schema, batches: Sequence[pa.RecordBatch] = ()) -> bytes:
    """Rows as an Arrow IPC stream."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


@dataclass(slots=True)
class PartitionFrames:
    """One partition, as far as the file was read."""

    earliest: int = 0
    latest: int = 0
    bases: list[int] = field(default_factory=list)
    chunks: list[pa.RecordBatch] = field(default_factory=list)

    def append(self, rows: pa.RecordBatch) -> None:
        """Rows of a commit; of no rows nothing is kept."""
        if rows.num_rows:
            self.bases.append(self.latest)
            self.chunks.append(rows)
            self.latest += rows.num_rows


class Topic:
    """What the file holds. One thread at a time.

    Args:
        path: The file.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._forget()
        self.refresh()

    def refresh(self) -> None:
        """Read the frames that were added.

        Raises:
            TopicNotFound: permanent; there is no file.
        """
        with self._locked("rb", fcntl.LOCK_SH) as file:
            self._read(file)

    def append(self, head: Mapping[str, Any], body: bytes = b"") -> None:
        """Add a frame; it is on the disk when this returns."""
        with self._locked("r+b", fcntl.LOCK_EX) as file:
            self._read(file)
            self._write(file, head, body)

    def claim(self, writer: str, instance: str) -> None:
        """From here on only this instance of the writer commits."""
        self.append({"claimed": writer, "instance": instance})

    def commit(
        self, head: dict[str, Any], body: bytes, instance: str
    ) -> LastCommit | None:
        """Add an epoch, unless it is committed; the check and the write are one step.

        Raises:
            WriterFenced: permanent; another instance has claimed the writer.
        """
        with self._locked("r+b", fcntl.LOCK_EX) as file:
            self._read(file)
            writer, epoch = head["writer"], head["epoch"]
            kept = self.writers.get(writer)
            if kept is not None and epoch <= kept[0].epoch:
                return kept[0]
            if self.owners.get(writer, instance) != instance:
                msg = f"epoch {epoch}: a later instance of {writer!r} has begun"
                raise WriterFenced(msg)
            self._write(file, head, body)
            return None

    def _forget(self) -> None:
        self.incarnation = ""
        self.schema = pa.schema([])
        self.partitions: dict[int, PartitionFrames] = {}
        self.writers: dict[str, tuple[LastCommit, float]] = {}
        self.owners: dict[str, str] = {}
        self._at = 0

    def _locked(self, mode: str, kind: int) -> IO[bytes]:
        self._session = session_of(self._path)
        try:
            file = Path(self._path).open(mode)  # noqa: SIM115 - the caller's
        except FileNotFoundError as error:
            msg = f"there is no file {self._path!r}"
            raise TopicNotFound(msg) from error
        fcntl.flock(file, kind)  # given back when the file is closed
        return file

    def _read(self, file: IO[bytes]) -> None:
        first = next(unpack(file.read(4096)), None)
        if first is None:
            msg = f"{self._path!r} has no header"
            raise PermanentError(msg)
        if first[0]["incarnation"] != self.incarnation:
            self._forget()
        file.seek(self._at)
        for head, body, length in unpack(file.read()):
            self._apply(head, body)
            self._at += length

    def _write(self, file: IO[bytes], head: Mapping[str, Any], body: bytes) -> None:
        file.seek(self._at)
        file.truncate()
        file.write(pack(head, body))
        file.flush()
        os.fsync(file.fileno())
        if session_of(self._path) != self._session:
            msg = f"the connection to the server of {self._path!r} broke off"
            raise ConnectionResetError(msg)

    def _apply(self, head: dict[str, Any], body: bytes) -> None:
        if "incarnation" in head:
            self.incarnation = head["incarnation"]
            self.schema = pa.ipc.open_stream(body).schema
        for number in range(len(self.partitions), head.get("partitions", 0)):
            self.partitions[number] = PartitionFrames()
        for number, earliest in head.get("earliest", {}).items():
            self.partitions[int(number)].earliest = earliest
        if "partition" in head:
            for number, rows in zip(
                head["partition"], pa.ipc.open_stream(body), strict=True
            ):
                self.partitions[number].append(rows)
        if "claimed" in head:
            self.owners[head["claimed"]] = head["instance"]
        if head.get("writer") is not None:
            self.writers[head["writer"]] = (_last_commit(head), head["at"])


def _last_commit(head: Mapping[str, Any]) -> LastCommit:
    text = head["position"]
    position = None if text is None else Position.from_json(text)
    return LastCommit(head["epoch"], position, Summary(*head["summary"]))
