"""``checkpoint next``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from streamfactory.cli.checkpoint.answers import number
from streamfactory.cli.checkpoint.locating import (
    locate,
    opened,
    streams_option,
    target_argument,
)
from streamfactory.cli.parameters import json_flag
from streamfactory.cli.results import Result, count, table
from streamfactory.spark.checkpoints import next_batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streamfactory.cli.checkpoint.locating import Located
    from streamfactory.cli.printing import Printer
    from streamfactory.spark.checkpoints import NextBatch
    from streamfactory.wiring.microbatch import Range
    from streamfactory.wiring.reading.source import Source


@dataclass(frozen=True, slots=True)
class RangeLine:
    """What the batch reads of one partition."""

    topic: str
    partition: int
    start: int
    end: int
    """Not read."""
    offsets: int
    tasks: int


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """What the batch reads of one stream."""

    source: int
    stream: str
    offsets: int
    waiting: int | None
    """Offsets that are there, and left for later batches; None where not known."""
    partitions: list[RangeLine]


@dataclass(frozen=True, slots=True)
class Plan(Result):
    """The answer of ``checkpoint next``."""

    checkpoint: str
    batch: int
    replay: bool
    offsets: int
    sources: list[SourcePlan]

    def lines(self) -> Iterator[str]:
        """The answer as text."""
        what = "reads"
        if self.replay:
            what = "was planned and not finished: it comes again, as planned, and reads"
        yield f"batch {self.batch} {what} {count(self.offsets, 'offset')}"
        head = ("TOPIC", "PARTITION", "FROM", "TO", "OFFSETS", "TASKS")
        for plan in self.sources:
            yield ""
            left = number(plan.waiting)
            yield f"source {plan.source}, stream {plan.stream}: {left} left for later"
            rows = [
                (r.topic, *map(str, (r.partition, r.start, r.end, r.offsets, r.tasks)))
                for r in plan.partitions
            ]
            yield from table([head, *rows] if rows else [("nothing",)], indent="  ")


@click.command("next")
@target_argument
@streams_option
@json_flag
@click.pass_obj
def next_command(printer: Printer, /, *, target: str, streams: Sequence[str]) -> None:
    """Tell what the next batch reads, by the limits of the streams, without Spark.

    A batch that was planned and not finished is read again as it was planned. Where
    the stream has lost what comes next, the command fails as the batch would.
    """
    located = locate(target, streams)
    query = located.asked()
    wanted = len(located.definitions)
    if query.planned:
        wanted = len(query.batch(query.planned[-1]).sources)
    with opened(printer, located, wanted) as sources:
        plan = next_batch(query, sources)
        printer.show(_plan(located, plan, sources))


def _plan(located: Located, plan: NextBatch, sources: Sequence[Source]) -> Plan:
    rows = zip(sources, plan.ranges, plan.waiting, strict=True)
    found = [
        SourcePlan(
            index,
            source.config.name,
            sum(one.size for one in ranges),
            waiting,
            _range_lines(ranges),
        )
        for index, (source, ranges, waiting) in enumerate(rows)
    ]
    offsets = sum(one.offsets for one in found)
    return Plan(located.folder, plan.number, plan.replay, offsets, found)


def _range_lines(ranges: Sequence[Range]) -> list[RangeLine]:
    by_partition: dict[object, list[Range]] = {}
    for one in ranges:
        by_partition.setdefault(one.partition, []).append(one)
    return [
        RangeLine(
            parts[0].partition.topic,
            parts[0].partition.id,
            min(part.start for part in parts),
            max(part.end for part in parts),
            sum(part.size for part in parts),
            len(parts),
        )
        for parts in by_partition.values()
    ]
