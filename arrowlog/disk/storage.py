"""What the log needs of a file system: names, whole blobs, one exclusive publication.

Names are relative, with ``/`` between folders. Nothing is ever changed in place: a blob
is created under a name that nobody else uses, or published under one that several may
want, and then one of them wins.
"""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streamfactory.spi import CorruptData, StorageFailed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


LONGEST_READ: Final = 64 << 20
"""Bytes of a blob that is read as a whole."""


class Watch(ABC):
    """One waiter's ear on a folder."""

    reusable: bool = False
    """Whether another waiter may have it after this one."""

    @abstractmethod
    def wait(self, timeout: float) -> None:
        """Return when something may have come, when woken, or after ``timeout``."""

    @abstractmethod
    def wake(self) -> None:
        """Make `wait` return, also one that begins later. From any thread."""

    @abstractmethod
    def close(self) -> None:
        """Give back what it holds."""


class NewBlob(ABC):
    """A blob being written, under a name that nobody else uses."""

    sink: Any
    """An Arrow output stream."""

    @abstractmethod
    def finish(self) -> int:
        """Close it; it is as safe as the storage is. Answers its bytes."""

    @abstractmethod
    def abandon(self) -> None:
        """Close and forget it."""


class Opened(NamedTuple):
    """A blob that is open for reading."""

    file: Any
    """An Arrow random-access file. What it reads does not change, nor does reading it
    end the process, whatever others do to the blob meanwhile."""
    own: bool
    """Whether only this user (and root) can have written the blob."""


class Storage(ABC):
    """A place for blobs. Thread-safe.

    Missing blobs are ``FileNotFoundError``; what else goes wrong is an error of our
    tree, which names the blob. What has the name of a blob and is none (a link, a
    folder, a pipe) is ``CorruptData``.
    """

    location: str
    """For messages, and as a key: equal places have equal ones."""
    lazy: bool = False
    """Whether blobs that were published may be lost, unless they are secured."""
    largest: int | None = None
    """Bytes that a new blob may have, where it is held in memory first."""

    @abstractmethod
    def within(self, folder: str) -> Storage:
        """The same place, from a folder on."""

    @abstractmethod
    def read(self, name: str, longest: int = LONGEST_READ) -> bytes:
        """The whole blob, of at most ``longest`` bytes.

        Raises:
            CorruptData: data_loss; it is longer. Nothing of it was read.
        """

    @abstractmethod
    def publish(self, name: str, data: bytes) -> bool:
        """Publish a blob, whole and once: False where there is one of that name.

        Raises:
            TransientError: transient; it may, or may not, have been published.
            StorageFailed: permanent; it was not, unless the words say that it was, and
                may not survive a power cut.
        """

    @abstractmethod
    def size(self, name: str) -> int:
        """Bytes of a blob."""

    @abstractmethod
    def names(self, folder: str) -> Sequence[str]:
        """Names in a folder, of blobs and folders; none where there is no folder."""

    @abstractmethod
    def ages(self, folder: str) -> Mapping[str, float]:
        """Blobs in a folder, with the seconds since they were written."""

    @abstractmethod
    def create(self, name: str) -> NewBlob:
        """Begin a blob."""

    @abstractmethod
    def open(self, name: str) -> Opened:
        """A blob to read parts of."""

    @abstractmethod
    def settle(self, folder: str) -> None:
        """Return when the names of all finished blobs of a folder are safe, too."""

    def secure(self, names: Iterable[str]) -> None:  # noqa: B027 - most always are
        """Have these blobs, and their names, safe, however lazy the storage is.

        Asked for what stands in for other blobs, before those are removed.
        """

    def prepare(self, folder: str) -> None:  # noqa: B027 - most places have no folders
        """Have a folder, as safe as the storage is."""

    @abstractmethod
    def remove(self, names: Iterable[str]) -> None:
        """Remove blobs; missing ones are fine."""

    @abstractmethod
    def remove_folder(self, folder: str) -> None:
        """Remove a folder with all that it holds."""

    @abstractmethod
    def watch(self, folder: str) -> Watch:
        """Listen for new names in a folder."""

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Give back what it holds."""


_REMEDIES: Final = {
    errno.ENOSPC: "free some space; nothing was committed",
    errno.EDQUOT: "free some space; nothing was committed",
    errno.EROFS: "make the file system writable",
    errno.EACCES: "give this user the right to write there",
    errno.EPERM: "give this user the right to write there",
}


def too_long(place: object, size: int, longest: int) -> CorruptData:
    """The error of a blob that is longer than the format allows."""
    msg = f"{place}: the file has {size} bytes, and may have {longest}"
    return CorruptData(msg, remedy="remove it, and check who can write the folder")


def failed(place: object, error: OSError) -> StorageFailed:
    """What the file system said of a place, in our words."""
    if isinstance(error, StorageFailed):
        return error
    reason = error.strerror or str(error)
    return StorageFailed(f"{place}: {reason}", remedy=_REMEDIES.get(error.errno or 0))
