"""``topics list`` and ``topics show``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from streamfactory.cli.parameters import class_paths_flag, json_flag, set_option
from streamfactory.cli.results import count, number, table
from streamfactory.cli.status import Status
from streamfactory.cli.topics.arguments import opened, place_options, target_argument
from streamfactory.cli.topics.columns import (
    schema_document,
    schema_lines,
    unknown_schema,
)
from streamfactory.spi import SchemaUnknown, Unsupported
from streamfactory.wiring.core.plain import total
from streamfactory.wiring.reading.waiting import waiting_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from streamfactory.cli.printing import Printer
    from streamfactory.spi import PartitionInfo
    from streamfactory.wiring.reading.metadata import Metadata
    from streamfactory.wiring.topics.admin import Admin, Overview

Document = dict[str, Any]


@click.command("list")
@target_argument
@set_option
@class_paths_flag
@json_flag
@click.pass_obj
def list_command(printer: Printer, /, *, target: str, **where: Any) -> Status:
    """List all topics of the place that a stream is in.

    Status 1 if one of them cannot be read; the others are listed all the same.
    """
    with opened(printer, target, **where) as admin:
        found = admin.overview()
        topics = [_overview(one, admin.metadata) for one in found]
    printer.show({"topics": topics}, _list_lines(topics))
    bad = any(one.problem is not None for one in found)
    return Status.FAILED if bad else Status.FINE


def _overview(one: Overview, metadata: Metadata) -> Document:
    bad = one.problem is not None
    # Of sparse offsets only a look at each topic counts the rows, as `show` does.
    rows = None if bad or metadata.sparse else rows_of(one.partitions, metadata)
    return {
        "topic": one.topic,
        "partitions": None if bad else len(one.partitions),
        "rows": rows,
        "problem": one.problem,
    }


def _list_lines(topics: Sequence[Document]) -> Iterable[str]:
    if not topics:
        return ["there are no topics"]
    head = ("TOPIC", "PARTITIONS", "ROWS", "PROBLEM")
    rows = [
        (
            t["topic"],
            number(t["partitions"]),
            number(t["rows"]),
            str(t["problem"] or ""),
        )
        for t in topics
    ]
    return table([head if any(row[-1] for row in rows) else head[:-1], *rows])


@click.command("show")
@target_argument
@place_options
@click.pass_obj
def show_command(printer: Printer, /, *, target: str, **where: Any) -> None:
    """Show the partitions, columns and settings of a topic."""
    with opened(printer, target, **where) as admin:
        document = _topic(admin)
        printer.show(document, _topic_lines(document))


def _topic(admin: Admin) -> Document:
    infos = admin.partitions()
    try:
        schema = schema_document(admin.schema())
    except SchemaUnknown as error:
        schema = unknown_schema(str(error))
    return {
        "topic": admin.topic,
        "rows": rows_of(infos, admin.metadata),
        "partitions": [_partition(info, admin.metadata) for info in infos],
        "schema": schema,
        "facts": dict(admin.facts()),
    }


def _partition(info: PartitionInfo, metadata: Metadata) -> Document:
    return {
        "partition": info.partition.id,
        "earliest": info.earliest,
        "latest": info.latest,
        "rows": rows_of([info], metadata),
        "state": info.state,
        "incarnation": info.incarnation,
        "written": info.latest if info.written is None else info.written,
        "waiting": info.waiting,
        "waiting_since": metadata.waiting_since(info),
    }


def _topic_lines(document: Document) -> Iterator[str]:
    rows, partitions = document["rows"], document["partitions"]
    held = "rows not counted" if rows is None else count(rows, "row")
    yield f"{document['topic']}: {held} in {count(len(partitions), 'partition')}"
    incarnations = {p["incarnation"] for p in partitions}
    alone = len(incarnations) == 1
    for one in incarnations if alone else ():
        if one is not None:
            yield f"incarnation: {one}"
    yield ""
    head = ("PARTITION", "EARLIEST", "LATEST", "ROWS", "STATE", "INCARNATION")
    cells = [
        (
            str(p["partition"]),
            str(p["earliest"]),
            number(p["latest"]),
            number(p["rows"]),
            p["state"].value,
            p["incarnation"] or "",
        )
        for p in partitions
    ]
    width = 5 if alone else 6
    yield from table([row[:width] for row in (head, *cells)])
    for p in partitions:
        if p["waiting"]:
            text = waiting_text(p["waiting"], p["waiting_since"])
            where = f"partition {p['partition']}, written up to {p['written']}"
            yield f"{where}: {text}"
    yield ""
    yield from schema_lines(document["schema"])
    facts = {k: v for k, v in document["facts"].items() if k != "incarnation"}
    if facts:
        yield ""
        yield "facts:"
        yield from table([(k, str(v)) for k, v in facts.items()], indent="  ")


def rows_of(infos: Iterable[PartitionInfo], metadata: Metadata) -> int | None:
    """Rows that are available, of all partitions; None if one is unknown.

    A little more where some offsets hold no row. Those of a table that was changed by
    key are unknown where its format keeps no changes: they cannot be read as a stream.
    """
    try:
        return total(metadata.behind(info, info.earliest) for info in infos)
    except Unsupported:
        return None
