"""Files below a prefix of an object store, and the parts of their manifest.

A read is conditional on the ETag that the object had when it was opened: rows of two
versions of an object are never mixed.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streamfactory.arrowlog.disk.positioned import Windows
from streamfactory.backends.file.foreign.framing import Malformed
from streamfactory.backends.file.foreign.medium import (
    Medium,
    Replaced,
    Stamp,
    translate_errors,
)
from streamfactory.backends.file.foreign.parts import (
    LONGEST_PART,
    MANIFEST,
    WRITABLE,
    Parts,
    damaged_part,
    part_name,
)
from streamfactory.backends.file.foreign.places import Found, Place
from streamfactory.spi import NotAuthorized, StorageFailed

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from streamfactory.arrowlog.disk.objectclient import ObjectClient
    from streamfactory.arrowlog.disk.objects import ObjectStorage

_SHORTEST: Final = 64 << 10
_LONGEST: Final = 4 << 20
"""Bytes of a read request: of the first one, and of those that continue it."""
_AT_ONCE: Final = 64 << 20
"""Bytes of an object that is read into memory as a whole."""


class ObjectPlace(Place):
    """The objects directly below a prefix.

    Args:
        client: Its URL is the prefix; closed with the place.
    """

    renames = False

    def __init__(self, client: ObjectClient) -> None:
        self._client = client

    def path(self, name: str) -> str:
        return f"{self._client.url}/{name}"

    def names(self) -> Iterator[tuple[str, Found | None]]:
        with self._client.asking("") as (module, store):
            found = module.list_with_delimiter(store)
        for folder in found["common_prefixes"]:
            yield folder.rstrip("/"), Found(Stamp("", 0, 0, 0), is_folder=True)
        for meta in found["objects"]:
            # Some stores list an object for the prefix itself.
            if meta["path"] and "/" not in meta["path"]:
                yield meta["path"], Found(_stamp(meta))

    def look(self, name: str) -> Found:
        with (
            translate_errors(self.path(name)),
            self._client.asking(name) as (module, store),
        ):
            return Found(_stamp(module.head(store, name)))

    def is_unchanged(self, name: str, stamp: Stamp) -> bool:
        return True  # reads are conditional

    def open(self, name: str, stamp: Stamp) -> Medium:
        return ObjectMedium(self._client, name, stamp)

    def close(self) -> None:
        self._client.close()


def _stamp(meta: Any) -> Stamp:
    """The stamp of an object. Listings of some stores have ETags without quotes."""
    modified = int(meta["last_modified"].timestamp() * 1e9)
    return Stamp((meta["e_tag"] or "").strip('"'), 0, int(meta["size"]), modified)


class ObjectMedium(Medium):
    """One version of an object.

    Args:
        client: Of the store.
        name: Of the object.
        stamp: Of the version.
    """

    def __init__(self, client: ObjectClient, name: str, stamp: Stamp) -> None:
        self._client = client
        self._name = name
        self.path = f"{client.url}/{name}"
        self.stamp = stamp
        # Without an ETag, its size and time are its version.
        self.version = str(stamp.device) or f"{stamp.size}-{stamp.modified}"
        self._windows = self._opened()
        self._whole: pa.Buffer | None = None

    def look(self) -> Stamp:
        return self.stamp

    def peek(self, offset: int, length: int) -> bytes:
        until = min(offset + length, self.stamp.size)
        return b"" if offset >= until else bytes(self._range(offset, until - offset))

    def read(self, offset: int, length: int) -> pa.Buffer:
        if offset + length > self.stamp.size:
            msg = f"the object has {self.stamp.size} bytes, not {offset + length}"
            raise Malformed(msg)
        return self._range(offset, length)

    def open(self) -> pa.NativeFile:
        if self._whole is not None:
            return pa.BufferReader(self._whole)
        return pa.PythonFile(self._opened(), mode="r")

    def map(self) -> None:
        if self._whole is None and 0 < self.stamp.size <= _AT_ONCE:
            self._whole = self._range(0, self.stamp.size)

    def close(self) -> None:
        self._whole = None
        self._windows = self._opened()

    def _range(self, offset: int, length: int) -> pa.Buffer:
        if self._whole is not None:
            return self._whole.slice(offset, length)
        return self._windows.read_range(offset, length)

    def _opened(self) -> Windows:
        size = self.stamp.size
        return Windows(self._fetch, self.path, size, _LONGEST, shortest=_SHORTEST)

    def _fetch(self, start: int, end: int) -> pa.Buffer:
        options: dict[str, Any] = {"range": (start, end)}
        if self.stamp.device:
            options["if_match"] = f'"{self.stamp.device}"'
        with self._reading() as (module, store):
            found = module.get(store, self._name, options=options)
            return pa.py_buffer(found.bytes())

    @contextmanager
    def _reading(self) -> Iterator[Any]:
        try:
            with self._client.asking(self._name) as (module, store):
                try:
                    yield module, store
                except module.exceptions.PreconditionError as error:
                    found = _stamp(module.head(store, self._name))
                    if found.device == self.stamp.device:
                        raise self._refused() from error
                    raise Replaced(self.path) from error
        except FileNotFoundError as error:
            raise Replaced(self.path) from error

    def _refused(self) -> StorageFailed:
        """The error of a store that refuses the ETag that the object has."""
        msg = f"{self.path}: the store refuses reads by the ETag {self.stamp.device!r}"
        remedy = (
            "use a store that supports `If-Match`, with no proxy that changes ETags"
        )
        return StorageFailed(msg, remedy=remedy)


class ObjectParts(Parts):
    """Objects of a folder beside the files, published by conditional puts.

    Args:
        storage: The prefix of the files; closed by its owner.
    """

    def __init__(self, storage: ObjectStorage) -> None:
        self._storage = storage
        self._client = storage.client

    def path(self, index: int) -> str:
        return f"{self._storage.location}/{_name(index)}"

    def first(self) -> Hashable | None:
        name = _name(0)
        try:
            with self._client.asking(name) as (module, store):
                return _stamp(module.head(store, name))
        except FileNotFoundError:
            return None

    def read(self, index: int) -> tuple[str, int] | None:
        name = _name(index)
        try:
            with self._client.asking(name) as (module, store):
                found = module.get(store, name)
                stamp = _stamp(found.meta)
                if stamp.size > LONGEST_PART:
                    raise damaged_part(self.path(index), f"it has {stamp.size} bytes")
                return found.bytes().to_bytes().decode(), stamp.modified
        except FileNotFoundError:
            return None
        except UnicodeDecodeError as error:
            raise damaged_part(self.path(index), "it is not UTF-8") from error

    def publish(self, index: int, data: bytes) -> bool:
        try:
            return self._storage.publish(_name(index), data)
        except (NotAuthorized, StorageFailed) as error:
            where = f"{self._storage.location}/{MANIFEST}"
            msg = f"the manifest {where!r} cannot be written: "
            raise StorageFailed(msg + error.what, remedy=WRITABLE) from error

    def sync(self) -> None:
        """Do nothing: what a store lists is durable."""

    def close(self) -> None:
        """Do nothing: see the argument."""


def _name(index: int) -> str:
    return f"{MANIFEST}/{part_name(index)}"
