"""What every input is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final, NoReturn

import pyarrow as pa

from streamfactory.spi import PositionRefused

UNREADABLE: Final = (pa.ArrowException, ValueError, OSError)
"""What Arrow's readers raise for files that are damaged, or were made to harm.
ValueError is of names that are not UTF-8."""


def first_line(error: BaseException) -> str:
    """What an error of `UNREADABLE` says."""
    return (str(error) or type(error).__name__).splitlines()[0]


@dataclass(frozen=True, slots=True)
class InputOptions:
    """How inputs are read."""

    block_size: int = 8 * 1024**2
    """Bytes taken at a time, about; a record is never split."""
    batch_rows: int = 65536
    """Rows taken at a time of files that have them in batches."""
    delimiter: str = ","
    """Of CSV."""
    header: bool = True
    """Whether CSV begins with the names of its columns."""
    max_message: int = 4 * 1024**3
    """Bytes that one message of Arrow IPC may have, decompressed."""


class Input(ABC):
    """One file, or standard input. One thread at a time.

    The order of calls is `columns`, `expect`, perhaps `skip`, then `read` until
    `finished`.
    """

    name: str
    """As the user gave it."""
    format: str
    size: int | None
    """Bytes, for a progress bar; None where nobody knows."""
    unit: str = "bytes"
    """What `offset` counts: ``bytes`` or ``rows``."""

    @abstractmethod
    def columns(self, timeout: float) -> pa.Schema | None:
        """The schema of the rows: the input's own, or guessed from its first block.

        Args:
            timeout: Seconds to wait for the first block.

        Returns:
            The schema; None where nothing came in time.

        Raises:
            FormatRefused: permanent; this is no input of the format.
        """

    def expect(self, schema: pa.Schema) -> None:  # noqa: B027 - most have types of their own
        """Read columns of these names as these types, where the input has none."""

    @abstractmethod
    def read(self, timeout: float, most: int) -> pa.RecordBatch | None:
        """The next rows; None when none came within so many seconds, or at the end.

        Args:
            timeout: Seconds.
            most: Rows, at least 1. `offset` and `digest` are exactly behind them.

        Raises:
            DecodeError: decode; the input holds what does not fit. Names the place.
            StorageFailed: permanent; the file cannot be read.
        """

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Whether everything was taken."""

    @property
    @abstractmethod
    def offset(self) -> int:
        """How much was taken: bytes, or rows."""

    @property
    @abstractmethod
    def progress(self) -> int:
        """How many bytes of `size` were taken, about."""

    @abstractmethod
    def digest(self) -> str:
        """Of what was taken: the same for the same part of the same input."""

    @abstractmethod
    def skip(self, offset: int, digest: str) -> None:
        """Go on behind what was published before.

        Raises:
            PositionRefused: permanent; it is not the same input.
        """

    @abstractmethod
    def close(self) -> None:
        """Close; twice is fine."""

    def refuse(self, why: str) -> NoReturn:
        """Tell that this input is not the one that was published."""
        msg = f"{self.name} is not what was published under this writer id: {why}"
        remedy = "give the same inputs in the same order, or another writer id"
        raise PositionRefused(msg, remedy=remedy)
