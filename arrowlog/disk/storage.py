"""What the log needs of a file system: names, whole blobs, one exclusive publication.

Names are relative, with ``/`` between folders. Nothing is ever changed in place: a blob
is created under a name that nobody else uses, or published under one that several may
want, and then one of them wins.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


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


class Storage(ABC):
    """A place for blobs. Thread-safe.

    Missing blobs are ``FileNotFoundError``; what else goes wrong is an error of our
    tree, which names the blob.
    """

    location: str
    """For messages, and as a key: equal places have equal ones."""
    largest: int | None = None
    """Bytes that a new blob may have, where it is held in memory first."""

    @abstractmethod
    def within(self, folder: str) -> Storage:
        """The same place, from a folder on."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """The whole blob."""

    @abstractmethod
    def publish(self, name: str, data: bytes) -> bool:
        """Publish a blob, whole and once: False where there is one of that name.

        Raises:
            TransientError: transient; it may, or may not, have been published.
            StorageFailed: permanent; it was not.
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
    def open(self, name: str) -> Any:
        """An Arrow random-access file."""

    @abstractmethod
    def settle(self, folder: str) -> None:
        """Return when the names of all finished blobs of a folder are safe, too."""

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
