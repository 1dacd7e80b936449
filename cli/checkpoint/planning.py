"""``checkpoint next``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from streamfactory.cli.checkpoint.arguments import (
    streams_option,
    target_argument,
)
from streamfactory.cli.parameters import json_flag
from streamfactory.cli.results import count, number, table
from streamfactory.spark.checkpoints import next_batch
from streamfactory.spark.locating import locate, opened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streamfactory.cli.printing import Printer
    from streamfactory.spark.checkpoints import NextBatch
    from streamfactory.spark.locating import Located
    from streamfactory.spi import Partition
    from streamfactory.wiring.microbatch import Range
    from streamfactory.wiring.reading.source import Source

Document = dict[str, Any]


@click.command("next")
@target_argument
@streams_option
@json_flag
@click.pass_obj
def next_command(printer: Printer, /, *, target: str, streams: Sequence[str]) -> None:
    """Show what the next batch reads, by the limits of the streams, without Spark.

    A batch that was planned and not finished is repeated as planned. If rows of the
    next batch were lost, the command fails as the batch would.
    """
    located = locate(target, streams)
    query = located.asked()
    wanted = len(located.definitions)
    if query.planned:
        wanted = len(query.batch(query.planned[-1]).sources)
    with opened(located, wanted, printer.also_mask) as sources:
        plan = next_batch(query, sources)
        document = _plan(located, plan, sources)
        printer.show(document, _lines(document))


def _plan(located: Located, plan: NextBatch, sources: Sequence[Source]) -> Document:
    rows = zip(sources, plan.ranges, plan.waiting, strict=True)
    found = [
        {
            "source": index,
            "stream": source.config.name,
            "offsets": sum(one.size for one in ranges),
            "waiting": waiting,
            "partitions": _ranges(ranges),
        }
        for index, (source, ranges, waiting) in enumerate(rows)
    ]
    return {
        "checkpoint": located.folder,
        "batch": plan.number,
        "replay": plan.replay,
        "offsets": sum(one.size for ranges in plan.ranges for one in ranges),
        "sources": found,
    }


def _ranges(ranges: Sequence[Range]) -> list[Document]:
    """What the batch reads of each partition; ``end`` is exclusive."""
    by_partition: dict[Partition, list[Range]] = {}
    for one in ranges:
        by_partition.setdefault(one.partition, []).append(one)
    return [
        {
            "topic": partition.topic,
            "partition": partition.id,
            "start": min(part.start for part in parts),
            "end": max(part.end for part in parts),
            "offsets": sum(part.size for part in parts),
            "tasks": len(parts),
        }
        for partition, parts in by_partition.items()
    ]


def _lines(document: Document) -> Iterator[str]:
    what = "reads"
    if document["replay"]:
        what = "was planned and not finished; it is repeated as planned, and reads"
    yield f"batch {document['batch']} {what} {count(document['offsets'], 'offset')}"
    head = ("TOPIC", "PARTITION", "FROM", "TO", "OFFSETS", "TASKS")
    for one in document["sources"]:
        yield ""
        left = number(one["waiting"])
        yield f"source {one['source']}, stream {one['stream']}: {left} left for later"
        rows = [tuple(map(str, line.values())) for line in one["partitions"]]
        yield from table([head, *rows] if rows else [("nothing",)], indent="  ")
