"""``topics list`` and ``topics show``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from streamfactory.cli.parameters import class_paths_flag, json_flag, set_option
from streamfactory.cli.results import Result, count, table
from streamfactory.cli.status import Status
from streamfactory.cli.topics.arguments import opened, place_options, target_argument
from streamfactory.cli.topics.columns import Columns, columns_of, unknown_columns
from streamfactory.spi import SchemaUnknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from streamfactory.cli.printing import Printer
    from streamfactory.spi import PartitionInfo
    from streamfactory.wiring.topics.admin import Admin, Overview


@dataclass(frozen=True, slots=True)
class TopicLine:
    """One topic of ``topics list``."""

    topic: str
    partitions: int | None
    rows: int | None
    """None where it is not known."""
    problem: str | None
    """Why nothing is known of it."""


@dataclass(frozen=True, slots=True)
class Topics(Result):
    """The answer of ``topics list``."""

    topics: list[TopicLine]

    def lines(self) -> Iterable[str]:
        """The answer as text."""
        if not self.topics:
            return ["there are no topics"]
        head = ("TOPIC", "PARTITIONS", "ROWS", "PROBLEM")
        rows = [
            (t.topic, _known(t.partitions), _known(t.rows), t.problem or "")
            for t in self.topics
        ]
        return table([head if any(row[-1] for row in rows) else head[:-1], *rows])


@click.command("list")
@target_argument
@set_option
@class_paths_flag
@json_flag
@click.pass_obj
def list_command(printer: Printer, /, *, target: str, **where: Any) -> Status:
    """List all topics of the place that a stream is in.

    Status 1 where one of them cannot be read; the others are listed all the same.
    """
    with opened(printer, target, **where) as admin:
        found = admin.overview()
    printer.show(Topics([_line(one) for one in found]))
    bad = any(one.problem is not None for one in found)
    return Status.FAILED if bad else Status.FINE


def _line(one: Overview) -> TopicLine:
    if one.problem is not None:
        return TopicLine(one.topic, None, None, str(one.problem))
    return TopicLine(one.topic, len(one.partitions), rows_of(one.partitions), None)


@dataclass(frozen=True, slots=True)
class PartitionLine:
    """One partition of ``topics show``."""

    partition: int
    earliest: int
    latest: int | None
    rows: int | None
    state: str
    incarnation: str | None


@dataclass(frozen=True, slots=True)
class Topic(Result):
    """The answer of ``topics show``."""

    topic: str
    rows: int | None
    partitions: list[PartitionLine]
    schema: Columns
    facts: dict[str, str | int]

    def lines(self) -> Iterator[str]:
        """The answer as text."""
        held = "rows not counted" if self.rows is None else count(self.rows, "row")
        yield f"{self.topic}: {held} in {count(len(self.partitions), 'partition')}"
        lives = {p.incarnation for p in self.partitions}
        alone = len(lives) == 1
        for life in lives if alone else ():
            if life is not None:
                yield f"incarnation: {life}"
        yield ""
        head = ("PARTITION", "EARLIEST", "LATEST", "ROWS", "STATE", "INCARNATION")
        rows = [
            (
                str(p.partition),
                str(p.earliest),
                _known(p.latest),
                _known(p.rows),
                p.state,
                p.incarnation or "",
            )
            for p in self.partitions
        ]
        width = 5 if alone else 6
        yield from table([row[:width] for row in (head, *rows)])
        yield ""
        yield from self.schema.lines()
        facts = {k: v for k, v in self.facts.items() if k != "incarnation"}
        if facts:
            yield ""
            yield "facts:"
            yield from table([(k, str(v)) for k, v in facts.items()], indent="  ")


@click.command("show")
@target_argument
@place_options
@click.pass_obj
def show_command(printer: Printer, /, *, target: str, **where: Any) -> None:
    """Show a topic: its partitions, its columns, and what it is made of."""
    with opened(printer, target, **where) as admin:
        printer.show(topic_of(admin))


def topic_of(admin: Admin) -> Topic:
    """All that can be shown of a topic."""
    infos = admin.partitions()
    try:
        schema = columns_of(admin.schema())
    except SchemaUnknown as error:
        schema = unknown_columns(str(error))
    facts: Mapping[str, str | int] = admin.facts()
    lines = [
        PartitionLine(
            info.partition.id,
            info.earliest,
            info.latest,
            None if info.latest is None else info.latest - info.earliest,
            info.state.value,
            info.incarnation,
        )
        for info in infos
    ]
    return Topic(admin.topic, rows_of(infos), lines, schema, dict(facts))


def rows_of(infos: Iterable[PartitionInfo]) -> int | None:
    """Offsets that are held, of all partitions; None where one does not know."""
    total = 0
    for info in infos:
        if info.latest is None:
            return None
        total += info.latest - info.earliest
    return total


def _known(number: int | None) -> str:
    return "unknown" if number is None else str(number)
