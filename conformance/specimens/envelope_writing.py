"""The writing half of `envelopes`: messages with keys, headers and times.

Nothing is claimed: an epoch that is committed twice is written twice.
"""

# Overriding methods keep the docstring, and the arguments, of their contract.
# ruff: noqa: ARG002, D102

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.spi import (
    LastCommit,
    MessageTooLarge,
    Outgoing,
    Position,
    ProducerFactory,
    StreamCommitter,
    StreamWriter,
    WriteContext,
    envelope_schema,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.spi import CommitMessage


def to_lines(outgoing: Outgoing) -> list[dict[str, Any]]:
    """Messages as lines of the file, without their offsets.

    ``outgoing.rows`` has one column, the encoded values; what was carried with each
    message lies in arrays of the same length beside it.
    """
    columns: dict[str, list[Any]] = {"value": outgoing.rows.column(0).to_pylist()}
    for name in ("key", "headers"):
        array = getattr(outgoing, name)
        columns[name] = [None] * len(outgoing.rows) if array is None else _list(array)
    if outgoing.timestamp is not None:
        micros = outgoing.timestamp.cast(pa.int64())
        columns["timestamp"] = micros.to_pylist()
    lines = []
    for values in zip(*columns.values(), strict=True):
        found = dict(zip(columns, values, strict=True))
        line: dict[str, Any] = {name: _hex(found[name]) for name in ("key", "value")}
        if found["headers"] is not None:
            headers = found["headers"]
            line["headers"] = [[h["key"], _hex(h["value"])] for h in headers]
        if found.get("timestamp") is not None:
            line["timestamp"] = found["timestamp"]
        lines.append(line)
    return lines


def _list(array: pa.Array) -> list[Any]:
    found: list[Any] = array.to_pylist()
    return found


def _hex(value: bytes | str | None) -> str | None:
    if value is None:
        return None
    return (value.encode() if isinstance(value, str) else value).hex()


class EnvelopesWriter(StreamWriter):
    """Keeps the messages of one attempt for the commit message.

    Args:
        largest: Bytes that a value may have.
    """

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._rows = 0
        self._lines: list[tuple[int, list[dict[str, Any]]]] = []

    def write(self, outgoing: Outgoing) -> None:
        lengths = pc.binary_length(outgoing.rows.column(0)).to_pylist()
        for row, length in enumerate(lengths, self._rows):
            if length is not None and length > self._largest:
                msg = f"row {row} has a value of {length} bytes, value.max.bytes is "
                msg += str(self._largest)
                raise MessageTooLarge(msg, remedy="write smaller values")
        self._rows += len(lengths)
        self._lines.append((outgoing.partition, to_lines(outgoing)))

    def commit(self) -> Any:
        return self._lines


class EnvelopesCommitter(StreamCommitter):
    """Appends to the files, one after the other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def commit(
        self,
        epoch: int,
        messages: Sequence[CommitMessage],
        source_position: Position | None = None,
    ) -> LastCommit | None:
        for message in messages:
            for partition, lines in message.payload or ():
                self._append(self._folder / f"{partition}.jsonl", lines)
        return None

    def _append(self, path: Path, lines: Sequence[dict[str, Any]]) -> None:
        head, *held = path.read_text().splitlines()
        earliest = json.loads(head)["earliest"]
        first = json.loads(held[-1])["offset"] + 1 if held else earliest
        with path.open("a") as file:
            for offset, line in enumerate(lines, first):
                file.write(json.dumps({"offset": offset, **line}) + "\n")


class EnvelopesProducerFactory(ProducerFactory):
    """Writes the folder."""

    CARRIES: ClassVar = frozenset({"_key", "_headers", "_timestamp"})

    def create_writer(self, context: WriteContext) -> StreamWriter:
        return EnvelopesWriter(self.config["value.max.bytes"])

    def create_committer(self, writer_id: str | None) -> StreamCommitter:
        return EnvelopesCommitter(self._folder)

    def fetch_partition_count(self, topic: str) -> int:
        return len(list(self._folder.glob("*.jsonl")))

    def fetch_schema(self, topic: str) -> pa.Schema:
        return envelope_schema()

    @property
    def _folder(self) -> Path:
        return Path(self.config["folder"])
