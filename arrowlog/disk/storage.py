"""The storage interface of the log: names, blobs, and exclusive publication.

Names are relative, with ``/`` between folders. Blobs are never changed: a blob is
created under a unique name, or published under a shared name, for which only one
publication succeeds.
"""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streamfactory.spi import CorruptData, StorageFailed, Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


LONGEST_READ: Final = 64 << 20
"""Maximum bytes of a blob that is read completely."""


class Watch(ABC):
    """Waits for new names in a folder, for one waiter at a time."""

    reusable: bool = False
    """Whether another waiter may reuse it."""

    @abstractmethod
    def wait(self, timeout: float) -> None:
        """Return when there may be a new name, when woken, or after ``timeout``."""

    @abstractmethod
    def wake(self) -> None:
        """Make the current or next `wait` return. Thread-safe."""

    @abstractmethod
    def close(self) -> None:
        """Release resources."""


class NewBlob(ABC):
    """A new blob with a unique name, while it is written."""

    sink: Any
    """An Arrow output stream."""

    @abstractmethod
    def finish(self) -> int:
        """Close it, as durable as the storage is, and return its bytes."""

    @abstractmethod
    def abandon(self) -> None:
        """Close and remove it."""


class Opened(NamedTuple):
    """A blob that is open for reading."""

    file: Any
    """An Arrow random-access file. If other programs change the blob, the read bytes do
    not change and the process does not crash."""
    own: bool
    """Whether only this user (and root) can have written the blob."""


class Blobs(ABC):
    """Where segments are written to."""

    location: str
    """Location, for messages and as a key: equal for equal storages."""
    largest: int | None = None
    """Maximum bytes of a new blob, if it is buffered in memory."""

    @abstractmethod
    def create(self, name: str) -> NewBlob:
        """Create a blob for writing."""

    @abstractmethod
    def remove(self, names: Iterable[str]) -> None:
        """Remove blobs; missing ones are ignored."""


class Storage(Blobs):
    """Stores blobs. Thread-safe.

    Missing blobs raise ``FileNotFoundError``; other errors are of our tree, with the
    name of the blob. A link, folder or pipe with the name of a blob raises
    ``CorruptData``.
    """

    lazy: bool = False
    """Whether published blobs may be lost unless `secure` is called."""
    adopts: bool = False
    """Whether other programs write files into folders at `location`, see `adopt`."""

    @abstractmethod
    def within(self, folder: str) -> Storage:
        """Return the storage of a folder."""

    @abstractmethod
    def read(self, name: str, longest: int = LONGEST_READ) -> bytes:
        """Read a blob of at most ``longest`` bytes.

        Raises:
            CorruptData: data_loss; it is larger. It was not read.
        """

    @abstractmethod
    def publish(self, name: str, data: bytes) -> bool:
        """Publish a blob atomically; False if the name exists.

        Raises:
            TransientError: transient; it may, or may not, have been published.
            StorageFailed: permanent; it was not published, unless the message says that
                it was but may not survive a power failure.
        """

    @abstractmethod
    def size(self, name: str) -> int:
        """Bytes of a blob."""

    @abstractmethod
    def written(self, name: str) -> float:
        """When a blob was written: milliseconds since the epoch, by its own clock."""

    @abstractmethod
    def names(self, folder: str) -> Sequence[str]:
        """Return the names of blobs and folders in a folder.

        Empty if it does not exist.
        """

    @abstractmethod
    def ages(self, folder: str) -> Mapping[str, float]:
        """Return the blobs in a folder, with the seconds since they were written."""

    def adopt(self, name: str, new: str) -> int:
        """Give a file that another program wrote a new name, and return its bytes.

        It is as durable as the storage is afterwards, except its name: see `settle`.
        The file may keep its former name, too.

        Raises:
            MessageTooLarge: permanent; the store copies no file of this size.
            Unsupported: misuse; see `adopts`.
        """
        msg = f"{self.location}: files of other programs are not taken from here"
        raise Unsupported(msg)

    @abstractmethod
    def open(self, name: str) -> Opened:
        """Open a blob for random access."""

    @abstractmethod
    def settle(self, folder: str) -> None:
        """Return when the names of all finished blobs of a folder are durable, too."""

    def secure(self, names: Iterable[str]) -> None:
        """Make blobs and their names durable, regardless of the fsync option.

        Called for blobs that replace others, before those are removed.
        """

    def prepare(self, folder: str) -> None:
        """Create a folder durably, unless it exists."""

    @abstractmethod
    def remove_folder(self, folder: str) -> None:
        """Remove a folder with its content."""

    @abstractmethod
    def watch(self, folder: str) -> Watch:
        """Watch a folder for new names."""

    def close(self) -> None:
        """Release resources."""


_PERMISSION: Final = (
    "give this user the permission to read it, and to write where it writes"
)
_REMEDIES: Final = {
    errno.ENOSPC: "free some space; nothing was committed",
    errno.EDQUOT: "free some space; nothing was committed",
    errno.EROFS: "make the file system writable",
    errno.EIO: "check the disk, and that it is mounted; then try again",
    errno.EMFILE: "raise the limit of open files of this process (ulimit -n)",
    errno.ENFILE: "raise the limit of open files of this machine (fs.file-max)",
    errno.EACCES: _PERMISSION,
    errno.EPERM: _PERMISSION,
}


def too_long(place: object, size: int, longest: int) -> CorruptData:
    """Return the error of a blob that is larger than the format allows."""
    msg = f"{place}: the file has {size} bytes, more than the maximum of {longest}"
    return CorruptData(msg, remedy="remove it, and check who can write the folder")


def failed(place: object, error: OSError) -> StorageFailed:
    """Translate an error of the file system."""
    if isinstance(error, StorageFailed):
        return error
    reason = error.strerror or str(error)
    return StorageFailed(f"{place}: {reason}", remedy=remedy_of(error))


def remedy_of(error: BaseException) -> str | None:
    """The remedy for an error of the file system, if there is one."""
    number = error.errno if isinstance(error, OSError) else None
    return _REMEDIES.get(number or 0)
