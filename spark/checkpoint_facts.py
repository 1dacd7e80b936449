"""Checkpoints of queries and groups as documents of plain values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamfactory.spark.checkpoints import (
    Place,
    ledger_folder,
    plain_counts,
    read_commits,
)
from streamfactory.wiring.core.plain import moment

if TYPE_CHECKING:
    from datetime import datetime

    from streamfactory.spark.checkpoints import Batch, QueryCheckpoint
    from streamfactory.spark.locating import Located
    from streamfactory.spi import Checkpoint, Position

Document = dict[str, Any]


def checkpoint_facts(located: Located, now: datetime) -> Document:
    """A checkpoint as a document of plain values: what `checkpoint show` prints.

    Raises:
        PositionRefused: permanent; a file of the checkpoint cannot be read.
    """
    groups = located.groups
    return {
        "checkpoint": located.folder,
        "pipeline": _pipeline(located),
        "query": None if located.query is None else _query(located, now),
        "commit": _commit(located),
        "groups": None
        if groups is None
        else [
            _instance(group, name, one)
            for group, instances in groups.items()
            for name, one in instances.items()
        ],
    }


def _instance(group: str, name: str, saved: Checkpoint) -> Document:
    """The checkpoint of one instance of a group."""
    return {
        "group": group,
        "instance": name,
        "generation": saved.generation,
        "position": saved.position.to_json(),
        "offsets": _offsets(saved.position),
    }


def _pipeline(located: Located) -> Document | None:
    """The record of a pipeline, with the reason for its current generation."""
    record = located.record
    if record is None:
        return None
    return {
        "name": record.pipeline,
        "generation": record.generation,
        "begun": record.begun,
        "start": record.start,
        "reset": record.reset,
        "ignored": record.ignored,
        "why": record.history[-1].why if record.history else None,
    }


def _query(located: Located, now: datetime) -> Document:
    query = located.asked()
    planned = query.batch(query.planned[-1]) if query.planned else None
    committed = query.committed_at()
    watermark = query.watermark()
    if watermark is None and planned is not None:
        watermark = planned.watermark
    return {
        "id": query.query_id,
        "last_batch": query.last,
        "committed_at": moment(committed),
        "age_seconds": None if committed is None else (now - committed).total_seconds(),
        "unfinished_batch": query.unfinished,
        "planned_at": None if planned is None else moment(planned.planned),
        "watermark": moment(watermark),
        "sources": _moved(located) if planned is None else _sources(query, planned),
        "notes": query.notes,
    }


def _commit(located: Located) -> Document | None:
    """What the last committed batch of a pipeline wrote; None without a record."""
    record, query = located.record, located.query
    if record is None or query is None or query.last is None:
        return None
    folder = ledger_folder(Place.of(located.folder), record.generation)
    commits = read_commits(folder, query.last)
    if not commits:
        return None
    rows = {True: 0, False: 0}
    for one in commits:
        rows[one.dead_letters] += sum(counts.writes for counts in one.partitions)
    return {
        "batch": query.last,
        "success_count": rows[False],
        "failed_count": rows[True],
        "sinks": [
            {
                "sink": one.sink,
                "at": one.at,
                "dead_letters": one.dead_letters,
                "failed_attempts": one.failed_attempts,
                "partitions": [plain_counts(counts) for counts in one.partitions],
            }
            for one in commits
        ],
    }


def _moved(located: Located) -> list[Document]:
    """The saved start of a pipeline that was moved and has not run since."""
    names = () if located.record is None else located.record.sources
    pairs = zip(names, located.moved_to() or (), strict=False)
    return [_source(i, name, position) for i, (name, position) in enumerate(pairs)]


def _sources(query: QueryCheckpoint, planned: Batch) -> list[Document]:
    """The position of each source; ``planned`` is the end of an unfinished batch."""
    ahead = query.unfinished is not None
    pairs = zip(planned.sources, query.positions() or (), strict=True)
    return [
        _source(index, source.name, position, source.position if ahead else None)
        for index, (source, position) in enumerate(pairs)
    ]


def _source(
    index: int, name: str | None, position: Position, planned: Position | None = None
) -> Document:
    return {
        "source": index,
        "name": name,
        "position": position.to_json(),
        "offsets": _offsets(position),
        "planned": None if planned is None else _offsets(planned),
    }


def _offsets(position: Position) -> list[Document]:
    """The next offset of each partition."""
    incarnations = position.incarnations
    return [
        {
            "topic": partition.topic,
            "partition": partition.id,
            "offset": offset,
            "incarnation": incarnations.get(partition),
        }
        for partition, offset in position.items()
    ]
