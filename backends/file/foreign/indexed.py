"""One file of another program: which rows it has, and where."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from streamfactory.backends.file.foreign.medium import translate_errors

if TYPE_CHECKING:
    import pyarrow as pa

    from streamfactory.backends.file.foreign.framing import Frame
    from streamfactory.backends.file.foreign.medium import Medium, Stamp

_HEAD: Final = 64 * 1024
_SAMPLE: Final = 4096
_SAMPLES: Final = 16


class IndexedFile(ABC):
    """An index of the batches of one file, without their rows. One thread at a time.

    Args:
        medium: The file; closed with the index, also if that cannot be made.
        form: Its format; see ``format`` of the options.
        longest: Maximum bytes of a batch.

    Raises:
        StreamError: The file cannot be read, or has another format.
    """

    def __init__(self, medium: Medium, form: str, longest: int) -> None:
        self.medium = medium
        self.path = medium.path
        self.form = form
        self.longest = longest
        self.whole = False
        """Whether the file is complete: it has a footer, or an end marker."""
        self.schema: pa.Schema | None = None
        """Schema in plain types; None while it is not written."""
        self.frames: list[Frame] = []
        """Batches, without empty ones."""
        self.starts: list[int] = [0]
        """First row of each batch, followed by the number of rows."""
        self._seen: Stamp | None = None
        self._incarnation: str | None = None
        try:
            self.refresh()
        except BaseException:
            self.close()
            raise

    @property
    @abstractmethod
    def needs_footer(self) -> bool:
        """Whether nothing can be read before the file is complete."""

    @property
    def rows(self) -> int:
        """Number of rows so far."""
        return self.starts[-1]

    def find(self, row: int) -> int:
        """Index of the batch that contains a row."""
        return bisect_right(self.starts, row) - 1

    def refresh(self) -> None:
        """Read what was appended.

        Raises:
            CorruptData, FormatRefused: The file does not have, or no longer has, its
                format.
        """
        if self.whole:
            return
        with translate_errors(self.path):
            stamp = self.medium.look()
            if stamp == self._seen:
                return
            self.medium.stamp = stamp
            self._extend(stamp.size)
            self._seen = stamp

    @abstractmethod
    def grew(self, stamp: Stamp) -> bool:
        """Whether the file has grown.

        Otherwise it was replaced, truncated or overwritten in place.
        """

    def incarnation(self) -> str | None:
        """Identifies what the offsets count; None while the file has no row.

        It stays equal while the file grows. It is derived from the inode and from the
        bytes of the beginning, which change if the file is overwritten.
        """
        if self._incarnation is None and (self.frames or self.whole):
            digest = self._identity()
            self._incarnation = f"{self.medium.stamp.inode:x}-{digest}"
        return self._incarnation

    def fingerprint(self) -> str:
        """Identifies a complete file by its content, also after it was copied.

        The version that its storage has. Without one it is derived from the length and
        all bytes; of a long file from samples.
        """
        if self.medium.version is not None:
            return self.medium.version
        size = self.medium.stamp.size
        if size > _SAMPLE * _SAMPLES:
            return self.sampled()
        digest = hashlib.blake2b(str(size).encode(), digest_size=12)
        with translate_errors(self.path):
            digest.update(self.medium.peek(0, size))
        return digest.hexdigest()

    def sampled(self) -> str:
        """The fingerprint by samples, which short files share more often.

        Manifests of earlier versions use it for all files.
        """
        size = self.medium.stamp.size
        step = max(1, (size - _SAMPLE) // (_SAMPLES - 1))
        digest = hashlib.blake2b(str(size).encode(), digest_size=12)
        with translate_errors(self.path):
            for offset in range(0, size, step):
                digest.update(self.medium.peek(offset, _SAMPLE))
        return digest.hexdigest()

    def is_listed_as(self, fingerprint: str) -> bool:
        """Whether a complete file is the one listed with this fingerprint."""
        if fingerprint == self.fingerprint():
            return True
        return self.medium.version is None and fingerprint == self.sampled()

    def close(self) -> None:
        """Close the file. Buffers that were read stay valid."""
        self.medium.close()

    @abstractmethod
    def _extend(self, size: int) -> None:
        """Index the file as far as ``size``."""

    @abstractmethod
    def _identity(self) -> str:
        """Digest of bytes that do not change while the file grows."""

    def _digest_of_head(self, until: int) -> str:
        with translate_errors(self.path):
            head = self.medium.peek(0, min(until, _HEAD))
        return hashlib.blake2b(head, digest_size=12).hexdigest()
