"""Rows that a sealed attempt carries itself: they are stored by their commit only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streamfactory.spi import BatchValidator

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streamfactory.spi import SoundRows

CARRIED: Final = 1 << 20
"""Bytes of rows up to which a pickle of them has them itself."""


@dataclass(frozen=True, slots=True, eq=False)
class CarriedRows:
    """The rows of an attempt. Nothing of them is stored before their commit."""

    incarnation: str
    """Of the topic that they were staged for."""
    schema: pa.Schema
    parts: Sequence[tuple[int, SoundRows]]
    """Partition and rows."""
    size: int
    """Bytes of the rows."""
    store: Callable[[], Mapping[str, Any]] | None = None
    """Stores rows of more than `CARRIED` bytes in a file of the log, and returns its
    location: another process commits them. None if there are never so many."""

    @property
    def partitions(self) -> list[int]:
        """The partitions of the rows."""
        return [partition for partition, _ in self.parts]

    def __reduce__(self) -> tuple[Any, ...]:
        if self.store is not None and self.size > CARRIED:
            return StoredAttempt, (self.store(),)
        # Arrow would pickle whole buffers, of which these rows may be a small slice.
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.schema) as writer:
            for _, rows in self.parts:
                writer.write_batch(rows.batch)
        stream = sink.getvalue().to_pybytes()
        return _restored, (self.incarnation, self.partitions, self.size, stream)


@dataclass(frozen=True, slots=True)
class StoredAttempt:
    """What a pickle of many rows has instead of them."""

    file: Mapping[str, Any]
    """Location of the rows, in a form of the log."""


def _restored(
    incarnation: str, partitions: Sequence[int], size: int, stream: bytes
) -> CarriedRows:
    """The rows of a pickle, validated once more: they may have been changed."""
    with pa.ipc.open_stream(pa.py_buffer(stream)) as reader:
        validator = BatchValidator(reader.schema)
        batches = [validator.validated(rows) for rows in reader]
    parts = tuple(zip(partitions, batches, strict=True))
    return CarriedRows(incarnation, validator.schema, parts, size)
