"""Reads parts of an index: Arrow files from untrusted storage, checked."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from streamfactory.arrowipc import PREFIX, ROWS, header_length, read_header
from streamfactory.arrowlog.decoding import LARGEST
from streamfactory.arrowlog.disk.index import PART_SCHEMA, Part
from streamfactory.arrowlog.disk.names import SEGMENT
from streamfactory.arrowlog.disk.sealed import DAMAGED
from streamfactory.spi import BatchValidator, CorruptData, SchemaMismatch, StreamError
from streamfactory.spi.computing import pc

if TYPE_CHECKING:
    from streamfactory.arrowlog.disk.storage import Storage

_MOST: Final = 1 << 30
"""Maximum bytes of a part: some 20,000,000 runs."""
_MAGIC: Final = b"ARROW1\0\0"
_NUMBERS: Final = (
    "partition",
    "base",
    "rows",
    "first_batch",
    "size",
    "first_ms",
    "last_ms",
)


def load_part(storage: Storage, name: str, partitions: int) -> Part:
    """Load a part of the index of a topic.

    Of a part that only this user can have written, only the schema and the last
    partition are checked, so that the time to open a topic does not depend on its
    index.

    Args:
        storage: Storage of the topic.
        name: Name of the part.
        partitions: Number of partitions.

    Raises:
        FileNotFoundError: A newer snapshot has other parts.
        CorruptData: data_loss; the part is not of the format.
    """
    place = f"{storage.location}/{name}"
    try:
        opened = storage.open(name)
        size = opened.file.size()
        if size > _MOST:
            msg = f"it has {size} bytes, more than the maximum of {_MOST}"
            raise _InvalidPart(msg)
        rows = _read(opened.file.read_buffer(size))
        _check_edges(rows, partitions)
        if not opened.own:
            _check_all(rows)
    except (CorruptData, SchemaMismatch) as error:
        named = place in error.what
        msg = error.what if named else f"{place}: {error.what}"
        raise CorruptData(msg, remedy=DAMAGED) from error
    except (FileNotFoundError, StreamError):
        raise
    except (pa.ArrowException, ValueError, OSError, struct.error) as error:
        reason = " ".join(str(error).split())
        msg = f"{place}: {reason}"
        raise CorruptData(msg, remedy=DAMAGED) from error
    return Part(name, rows)


class _InvalidPart(ValueError):
    """A file is not a valid part."""


def _read(data: pa.Buffer) -> pa.RecordBatch:
    """Return the only batch of an Arrow file.

    It is read as the stream after the file's first 8 bytes, so that the messages that
    are read are those that were checked, whatever the footer has. None may be
    compressed, so that memory is bounded by the file's size.
    """
    messages, at = memoryview(data), len(_MAGIC)
    found = []
    if bytes(messages[:at]) != _MAGIC:
        msg = "it is not an Arrow file"
        raise _InvalidPart(msg)
    while length := header_length(messages[at : at + PREFIX]):
        at += PREFIX
        header = read_header(messages[at : at + length], len(messages))
        if header.compressed is not None:
            msg = "it is compressed"
            raise _InvalidPart(msg)
        found.append(header.kind)
        at += length + header.body
        if at + PREFIX > len(messages):
            msg = "it is truncated"
            raise _InvalidPart(msg)
    if found.count(ROWS) != 1:
        msg = f"it has {found.count(ROWS)} batches, expected one"
        raise _InvalidPart(msg)
    with pa.ipc.open_stream(data.slice(len(_MAGIC))) as reader:
        if not reader.schema.equals(PART_SCHEMA):
            msg = "its columns are not those of a part of an index"
            raise _InvalidPart(msg)
        return reader.read_next_batch()


def _check_edges(rows: pa.RecordBatch, partitions: int) -> None:
    """Run the checks of constant cost."""
    rows.validate()  # otherwise the last value may be outside its buffer
    if not rows.num_rows:
        msg = "it has no rows"
        raise _InvalidPart(msg)
    last = rows.column("partition")[-1].as_py()
    if last is None or last >= partitions:
        msg = f"it has rows of partition {last} of {partitions}"
        raise _InvalidPart(msg)


def _check_all(rows: pa.RecordBatch) -> None:
    """Every value."""
    BatchValidator(PART_SCHEMA).validate(rows)
    file, batches = rows.column("file"), rows.column("batches")
    columns = [*rows.columns, file.dictionary, batches.values]
    if any(column.null_count for column in columns):
        msg = "it has nulls"
        raise _InvalidPart(msg)
    partition, base, count, first, size, first_ms, last_ms = (
        rows.column(name).to_numpy(zero_copy_only=False).astype(np.int64)
        for name in _NUMBERS
    )
    lowest = min(int(one.min()) for one in (partition, base, first, size, first_ms))
    highest = max(int(one.max()) for one in (base, count, size, last_ms))
    if lowest < 0 or highest > LARGEST or int(count.min()) < 1:
        msg = "it has numbers out of range"
        raise _InvalidPart(msg)
    if bool((first_ms > last_ms).any()):
        msg = "it has runs that end before they begin"
        raise _InvalidPart(msg)
    step, rise = np.diff(partition), np.diff(base)
    if bool(((step < 0) | ((step == 0) & (rise <= 0))).any()):
        msg = "it is not sorted by partition and offset"
        raise _InvalidPart(msg)
    if not np.array_equal(_totals(batches), count):
        msg = "it has batches that do not make up their runs"
        raise _InvalidPart(msg)
    whole = f"^(?:{SEGMENT.pattern})\\z"
    if not pc.all(pc.match_substring_regex(file.dictionary, whole)).as_py():
        msg = "it has names that are not of segments"
        raise _InvalidPart(msg)


def _totals(batches: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the sum of each list; 0 if it is empty or has a number below 1."""
    offsets = batches.offsets.to_numpy(zero_copy_only=False)
    values = batches.values.to_numpy(zero_copy_only=False).astype(np.int64)
    sums = np.concatenate([[0], np.cumsum(values)])
    totals: np.ndarray[Any, np.dtype[np.int64]] = sums[offsets[1:]] - sums[offsets[:-1]]
    return totals if bool((values > 0).all()) else np.zeros(len(batches), np.int64)
