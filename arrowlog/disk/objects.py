"""Storage in an object store that supports conditional puts.

A request with a lost reply may have been executed. A publication that finds an existing
blob therefore reads it: its own content means success.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, final

import pyarrow as pa

from streamfactory.arrowlog.disk import forks
from streamfactory.arrowlog.disk.objectclient import ObjectClient, ObjectOptions
from streamfactory.arrowlog.disk.positioned import Windows
from streamfactory.arrowlog.disk.storage import (
    LONGEST_READ,
    NewBlob,
    Opened,
    Storage,
    Watch,
    too_long,
)
from streamfactory.arrowlog.disk.watching import PollingWatch
from streamfactory.spi import (
    MessageTooLarge,
    StorageFailed,
    StreamError,
    TransientError,
)
from streamfactory.spi.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import ModuleType

_LARGEST: Final = 64 << 20
_PART: Final = 16 << 20
"""Bytes of one request of a large upload, which has a deadline too."""
_COPY: Final = 5 << 30
"""Maximum bytes of a blob that a store copies in one request."""
_WINDOW: Final = 4 << 20
"""Bytes of one read request; smaller blobs are read completely."""
_TRIES: Final = 5
_BACKOFF: Final = Backoff(0.05, 1.0)
_FIRST_POLL: Final = 0.05
_LONGEST_POLL: Final = 1.0


class _Taken(Exception):
    """A conditional put was refused."""


class ObjectStorage(Storage):
    """Blobs below a URL, published by conditional puts.

    Args:
        url: ``s3://bucket/folder``, ``gs://...``, ``az://...``: as the client accepts.
        options: Connection options.
        make: Creates the client's store, for tests.
    """

    largest = _LARGEST
    adopts = True

    def __init__(
        self,
        url: str,
        options: ObjectOptions | None = None,
        make: Callable[[ModuleType], Any] | None = None,
    ) -> None:
        self.location = url.rstrip("/")
        self._client = ObjectClient(self.location, options or ObjectOptions(), make)
        self._proof = _Proof(self)
        self._prefix = ""

    @property
    def client(self) -> ObjectClient:
        """The client of the store, whose paths begin at the URL."""
        return self._client

    def within(self, folder: str) -> Storage:
        inner = object.__new__(ObjectStorage)
        inner.location = f"{self.location}/{folder}"
        inner._client = self._client
        inner._proof = self._proof
        inner._prefix = self._path(folder) + "/"
        return inner

    def read(self, name: str, longest: int = LONGEST_READ) -> bytes:
        path = self._path(name)
        with self._client.asking(path) as (module, store):
            found = module.get(store, path)
            size = int(found.meta["size"])
            if size > longest:
                msg = f"{self.location}/{name}"
                raise too_long(msg, size, longest)
            data: bytes = found.bytes().to_bytes()
            return data

    def publish(self, name: str, data: bytes) -> bool:
        self._proof.give()
        return self.publish_unproved(name, data)

    def publish_unproved(self, name: str, data: bytes) -> bool:
        """Publish without checking first that the store supports conditional puts."""
        failure: Exception | None = None
        for failures in range(_TRIES):
            time.sleep(_BACKOFF.pause(failures))
            try:
                self.put_new(name, data)
            except (_Taken, TransientError) as error:
                failure = error
            else:
                return True
            # Equal bytes are our own: each record has a unique id.
            with contextlib.suppress(FileNotFoundError):
                return self.read(name) == data
        if isinstance(failure, TransientError):
            raise failure
        msg = f"{self.location}/{name}: the store reported an existing object, but it "
        msg += "does not exist"
        raise TransientError(msg)

    def put_new(self, name: str, data: bytes) -> None:
        """Execute one conditional put.

        Raises:
            _Taken: The blob exists, or another put of it is running.
            TransientError: transient; it may have been written.
        """
        path = self._path(name)
        with self._client.asking(path) as (module, store):
            try:
                module.put(store, path, data, mode="create", use_multipart=False)
            except module.exceptions.AlreadyExistsError as error:
                raise _Taken(path) from error
            except FileNotFoundError as error:
                # Writing requires no folder, so the bucket is missing.
                msg = f"{self.location}: the bucket does not exist"
                remedy = "create it first: streamfactory does not create buckets"
                raise StorageFailed(msg, remedy=remedy) from error
            except (module.exceptions.NotSupportedError, NotImplementedError) as error:
                raise self._proof.refusal() from error

    def size(self, name: str) -> int:
        path = self._path(name)
        with self._client.asking(path) as (module, store):
            return int(module.head(store, path)["size"])

    def written(self, name: str) -> float:
        path = self._path(name)
        with self._client.asking(path) as (module, store):
            found: datetime = module.head(store, path)["last_modified"]
            return found.timestamp() * 1000

    def names(self, folder: str) -> Sequence[str]:
        folders, blobs = self._listed(folder)
        return [*folders, *blobs]

    def ages(self, folder: str) -> Mapping[str, float]:
        now = datetime.now(UTC)
        return {
            name: (now - blob["last_modified"]).total_seconds()
            for name, blob in self._listed(folder)[1].items()
        }

    def _listed(self, folder: str) -> tuple[list[str], dict[str, Any]]:
        """Return the names of the folders in a folder, and its blobs by name.

        Some stores list a blob for the folder itself, which is ignored.
        """
        path = self._path(folder).rstrip("/")
        start = f"{path}/" if path else ""
        with self._client.asking(path) as (module, store):
            found = module.list_with_delimiter(store, path or None)
        folders = [one.removeprefix(start) for one in found["common_prefixes"]]
        blobs = {
            blob["path"].removeprefix(start): blob
            for blob in found["objects"]
            if blob["path"].startswith(start) and blob["path"] != start
        }
        return folders, blobs

    def create(self, name: str) -> NewBlob:
        return _NewObject(self, name)

    def put(self, name: str, data: pa.Buffer) -> None:
        """Write a blob with a unique name; may be repeated."""
        path = self._path(name)
        view = memoryview(data).cast("B")
        with self._client.asking(path) as (module, store):
            module.put(store, path, view, chunk_size=_PART, max_concurrency=4)

    def adopt(self, name: str, new: str) -> int:
        """Copy a blob within the store; the other one goes with its folder."""
        path = self._path(name)
        with self._client.asking(path) as (module, store):
            size = int(module.head(store, path)["size"])
            if size > _COPY:
                msg = f"{self.location}/{name}: the object has {size} bytes, more than "
                msg += f"a store copies in one request ({_COPY})"
                raise MessageTooLarge(msg, remedy="write the rows in more files")
            module.copy(store, path, self._path(new))
        return self.size(new)

    def open(self, name: str) -> Opened:
        first, size = self._part(name, 0, _WINDOW)
        if size <= first.size:
            return Opened(pa.BufferReader(first), own=False)

        def fetch(start: int, end: int) -> pa.Buffer:
            return self._part(name, start, end)[0]

        windows = Windows(fetch, name, size, _WINDOW, first=first)
        return Opened(pa.PythonFile(windows, mode="r"), own=False)

    def _part(self, name: str, start: int, end: int) -> tuple[pa.Buffer, int]:
        """Return a part of a blob, and the size of the blob."""
        path = self._path(name)
        with self._client.asking(path) as (module, store):
            found = module.get(store, path, options={"range": (start, end)})
            return pa.py_buffer(found.bytes()), int(found.meta["size"])

    def settle(self, folder: str) -> None:
        """Do nothing: written blobs are durable."""

    def remove(self, names: Iterable[str]) -> None:
        others = []
        for name in names:
            # Records must be deleted in order; deletions within one request have no
            # order.
            if name.startswith("log/"):
                self._remove([self._path(name)])
            else:
                others.append(self._path(name))
        if others:
            self._remove(others)

    def _remove(self, paths: Sequence[str]) -> None:
        try:
            with self._client.asking(paths[0]) as (module, store):
                module.delete(store, paths)
        except FileNotFoundError:  # some stores report it, and stop there
            if len(paths) > 1:
                for path in paths:
                    self._remove([path])

    def remove_folder(self, folder: str) -> None:
        path = self._path(folder)
        with self._client.asking(path) as (module, store):
            blobs = [
                blob["path"]
                for chunk in module.list(store, path, chunk_size=1000)
                for blob in chunk
            ]
        if blobs:
            self._remove(blobs)

    def watch(self, folder: str) -> Watch:
        return PollingWatch(_FIRST_POLL, _LONGEST_POLL)

    def close(self) -> None:
        self._client.close()

    def _path(self, name: str) -> str:
        return f"{self._prefix}{name}"


@final
class _Proof:
    """Checks once, before the first write, that a store supports conditional puts.

    A store that ignores the condition reports success for every put: of two writers of
    one epoch the second would overwrite the first.
    """

    def __init__(self, storage: ObjectStorage) -> None:
        self._storage = storage
        self._lock = forks.Lock()
        self._given = False

    def give(self) -> None:
        """Run the check, unless it was done.

        Raises:
            StorageFailed: permanent; it ignores conditions.
        """
        with self._lock:
            if self._given:
                return
            name = f".probe-{uuid.uuid4().hex}"
            try:
                # A conflict alone does not show whether the blob exists.
                self._storage.publish_unproved(name, b"first")
                try:
                    self._storage.put_new(name, b"second")
                except _Taken:
                    self._given = True
                else:
                    raise self.refusal()
            finally:
                with contextlib.suppress(StreamError):
                    self._storage.remove([name])

    def refusal(self) -> StorageFailed:
        """Return the error of a store without conditional puts."""
        msg = (
            f"{self._storage.location}: the store ignores `If-None-Match: *`, "
            "so two writers could overwrite each other"
        )
        return StorageFailed(msg, remedy="use a store that supports conditional puts")


class _NewObject(NewBlob):
    def __init__(self, storage: ObjectStorage, name: str) -> None:
        self._storage = storage
        self._name = name
        self.sink = pa.BufferOutputStream()

    def finish(self) -> int:
        data = self.sink.getvalue()
        self._storage.put(self._name, data)
        return int(data.size)

    def abandon(self) -> None:
        self.sink = None
