"""Records of what each batch of a pipeline wrote, kept beside its checkpoint.

``written/<generation>/<sink>.<batch modulo 100>.json`` has one batch of one sink. The
record is saved just before the sink commits the batch: after a kill in between, the
batch is repeated and so is the record. It counts once Spark has committed the batch.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, final

from streamfactory.spark.checkpoints.documents import read_document
from streamfactory.spark.checkpoints.places import Place
from streamfactory.spi import PositionRefused
from streamfactory.wiring.writing.counting import PartitionCounts

if TYPE_CHECKING:
    from collections.abc import Sequence

FOLDER: Final = "written"
VERSION: Final = 1
_WHAT: Final = "the record of a batch"
_REMEDY: Final = "remove the file: only the numbers of that batch are lost"
KEPT: Final = 100
"""Batches whose records are kept, as many as Spark keeps plans."""


@final
@dataclass(frozen=True, slots=True)
class SinkCommit:
    """What one batch wrote to one sink."""

    sink: str
    batch: int
    at: str
    """Time just before the commit."""
    dead_letters: bool
    """Whether the sink is that of bad messages."""
    failed_attempts: int
    """Attempts that the sink aborted; attempts that were killed are not known."""
    partitions: tuple[PartitionCounts, ...]
    """By target partition; empty where the batch had no rows for the sink."""

    def to_json(self) -> bytes:
        """One line, sorted keys."""
        body = {
            "version": VERSION,
            "sink": self.sink,
            "batch": self.batch,
            "at": self.at,
            "deadLetters": self.dead_letters,
            "failedAttempts": self.failed_attempts,
            "partitions": [plain_counts(one) for one in self.partitions],
        }
        text = json.dumps(body, sort_keys=True, separators=(",", ":"))
        return f"{text}\n".encode()


@final
@dataclass(frozen=True, slots=True)
class Ledger:
    """Where the commits of one sink are recorded. Plain values only."""

    folder: str
    """A path or URL."""
    sink: str
    dead_letters: bool = False

    def record(self, batch: int, partitions: Sequence[PartitionCounts]) -> None:
        """Record a batch that is about to be committed.

        Raises:
            CheckpointFailed: permanent; it cannot be saved.
        """
        self._save(batch, self._failed(batch), _added(partitions))

    def record_failure(self, batch: int) -> None:
        """Count an attempt that was aborted.

        Raises:
            CheckpointFailed: permanent; it cannot be saved.
        """
        self._save(batch, self._failed(batch) + 1, ())

    def read(self, batch: int) -> SinkCommit | None:
        """What a batch wrote; None if there is no record of it.

        Raises:
            PositionRefused: permanent; the record is corrupt or newer.
        """
        found = _read(Place.of(self.folder), _file(self.sink, batch))
        return found if found is not None and found.batch == batch else None

    def _failed(self, batch: int) -> int:
        try:
            before = self.read(batch)
        except PositionRefused:
            return 0  # it is replaced now
        return 0 if before is None else before.failed_attempts

    def _save(
        self, batch: int, failed: int, partitions: tuple[PartitionCounts, ...]
    ) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        at = now.replace("+00:00", "Z")
        commit = SinkCommit(self.sink, batch, at, self.dead_letters, failed, partitions)
        name = _file(self.sink, batch)
        Place.of(self.folder).replace(name, commit.to_json())


def ledger_folder(checkpoint: Place, generation: int) -> Place:
    """The folder with the records of a generation."""
    return checkpoint.child(FOLDER).child(str(generation))


def read_commits(folder: Place, batch: int) -> list[SinkCommit]:
    """What a batch wrote, by sink; empty if there is no record of it.

    Raises:
        PositionRefused: permanent; a record is corrupt or newer.
    """
    suffix = f".{batch % KEPT}.json"
    found = []
    for name in folder.names() or ():
        if name.endswith(suffix) and not name.startswith("."):
            commit = _read(folder, name)
            if commit is not None and commit.batch == batch:
                found.append(commit)
    return found


def plain_counts(counts: PartitionCounts) -> dict[str, Any]:
    """Counts under the names of Hudi's commit metadata."""
    return {
        "topic": counts.topic,
        "partition": counts.partition,
        "numWrites": counts.writes,
        "numUpserts": counts.upserts,
        "numDeletes": counts.deletes,
        "totalWriteBytes": counts.size,
    }


def _added(partitions: Sequence[PartitionCounts]) -> tuple[PartitionCounts, ...]:
    """The counts of all tasks, by partition."""
    found: dict[tuple[str, int], PartitionCounts] = {}
    for one in partitions:
        place = one.topic, one.partition
        found.setdefault(place, PartitionCounts(*place)).add(one)
    return tuple(found[place] for place in sorted(found))


def _file(sink: str, batch: int) -> str:
    return f"{sink}.{batch % KEPT}.json"


def _read(folder: Place, name: str) -> SinkCommit | None:
    body = read_document(folder, name, VERSION, _WHAT, _REMEDY)
    if body is None:
        return None
    try:
        return _commit(body)
    except (ValueError, KeyError, TypeError) as error:
        msg = f"{folder.text}/{name} is not {_WHAT}"
        raise PositionRefused(msg, remedy=_REMEDY) from error


def _commit(body: dict[str, Any]) -> SinkCommit:
    return SinkCommit(
        sink=str(body["sink"]),
        batch=int(body["batch"]),
        at=str(body["at"]),
        dead_letters=bool(body["deadLetters"]),
        failed_attempts=int(body["failedAttempts"]),
        partitions=tuple(map(_counts, body["partitions"])),
    )


def _counts(plain: dict[str, Any]) -> PartitionCounts:
    return PartitionCounts(
        str(plain["topic"]),
        int(plain["partition"]),
        int(plain["numWrites"]),
        int(plain["numUpserts"]),
        int(plain["numDeletes"]),
        int(plain["totalWriteBytes"]),
    )
