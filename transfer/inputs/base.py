"""The interface of inputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final, NoReturn

import pyarrow as pa

from streamfactory.spi import PositionRefused

UNREADABLE: Final = (pa.ArrowException, ValueError, OSError)
"""Exceptions of Arrow's readers for damaged or malicious files. ValueError is raised
for names that are not UTF-8."""


@dataclass(frozen=True, slots=True)
class InputOptions:
    """How inputs are read."""

    block_size: int = 8 * 1024**2
    """Approximate bytes of one read; a record is never split."""
    batch_rows: int = 65536
    """Rows of one read, for files with batches."""
    delimiter: str = ","
    """Of CSV."""
    header: bool = True
    """Whether CSV begins with the names of its columns."""
    continued: bool = False
    """Whether inputs are published again when they have grown."""
    max_message: int = 4 * 1024**3
    """Maximum decompressed bytes of one Arrow IPC message."""


class Input(ABC):
    """One file, or standard input. One thread at a time.

    The order of calls is `columns`, `expect`, perhaps `skip`, then `read` until
    `finished`.
    """

    name: str
    """The user's name of it."""
    format: str
    size: int | None
    """Bytes, for a progress bar; None if unknown."""
    unit: str = "bytes"
    """What `offset` counts: ``bytes`` or ``rows``."""
    sampled: int | None = None
    """Number of rows that types were guessed from; None if none were."""

    @property
    def unfinished(self) -> int:
        """Bytes of a last line that its writer has not finished: they are not read."""
        return 0

    @abstractmethod
    def columns(self, timeout: float) -> pa.Schema | None:
        """Return the schema of the rows.

        The input's own, or inferred from its first block.

        Args:
            timeout: Seconds to wait for the first block.

        Returns:
            The schema; None if nothing arrived in time.

        Raises:
            FormatRefused: permanent; the input does not have the format.
        """

    def expect(self, schema: pa.Schema, *, guessed: bool = False) -> None:  # noqa: B027 - most have types of their own
        """Read columns as these types, if the input has no types.

        Args:
            schema: Of the rows.
            guessed: Whether the types are guessed: then they may not change a value.
        """

    @abstractmethod
    def read(self, timeout: float, most: int) -> pa.RecordBatch | None:
        """Return the next rows; None after the timeout, or at the end.

        Args:
            timeout: Seconds.
            most: Maximum rows, at least 1. `offset` and `digest` are exactly after
                them.

        Raises:
            DecodeError: decode; a part of the input cannot be read; has its position.
            StorageFailed: permanent; the file cannot be read.
        """

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Whether all rows were read."""

    @property
    @abstractmethod
    def offset(self) -> int:
        """The number of bytes or rows that were read."""

    @property
    @abstractmethod
    def progress(self) -> int:
        """The approximate number of bytes of `size` that were read."""

    @abstractmethod
    def digest(self) -> str:
        """The digest of the part that was read."""

    @abstractmethod
    def skip(self, offset: int, digest: str) -> None:
        """Skip the part that was published before.

        Raises:
            PositionRefused: permanent; it is not the same input.
        """

    @abstractmethod
    def close(self) -> None:
        """Close; may be called twice."""

    def refuse(self, why: str) -> NoReturn:
        """Raise because this input is not the one that was published."""
        msg = (
            f"{self.name} is not the input that was published with this "
            f"writer id: {why}"
        )
        remedy = "pass the same inputs in the same order, or use another writer id"
        raise PositionRefused(msg, remedy=remedy)
