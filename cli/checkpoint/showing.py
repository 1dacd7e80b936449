"""``checkpoint show``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from streamfactory.cli.checkpoint.arguments import (
    kept_target_argument,
    server_option,
    source_title,
)
from streamfactory.cli.parameters import json_flag
from streamfactory.cli.results import table
from streamfactory.spark.checkpoint_facts import checkpoint_facts
from streamfactory.spark.locating import locate_kept

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streamfactory.cli.printing import Printer


Document = dict[str, Any]

_COUNTS: Final = (
    "topic",
    "partition",
    "numWrites",
    "numUpserts",
    "numDeletes",
    "totalWriteBytes",
)


@click.command("show")
@kept_target_argument
@server_option
@json_flag
@click.pass_obj
def show_command(
    printer: Printer, /, *, target: str | None, server: str | None
) -> None:
    """Show the position of a query, or of groups: last batch, offsets, watermark.

    FILE is a pipeline's. DIR is a checkpoint: a pipeline's, that of any Spark query
    which reads streams of streamfactory, or a folder of checkpoints of groups. Needs
    neither Spark nor Java, and connects to nothing but the server of --server.
    """
    document = checkpoint_facts(locate_kept(target, server), datetime.now(UTC))
    printer.show(document, _lines(document))


def _lines(document: Document) -> Iterator[str]:
    yield document["checkpoint"]
    pipeline, query = document["pipeline"], document["query"]
    rows = [] if pipeline is None else _pipeline_rows(pipeline)
    rows += [] if query is None else _query_rows(query)
    yield from table([(f"{key}:", value) for key, value in rows])
    for source in [] if query is None else query["sources"]:
        yield ""
        yield f"{source_title(source['source'], source['name'])}:"
        yield from _offset_table(source["offsets"], source["planned"])
    if document["commit"] is not None:
        yield from _commit_lines(document["commit"])
    for one in document["groups"] or ():
        yield ""
        named = f"group {one['group']}, instance {one['instance']}"
        yield f"{named}, save {one['generation']}:"
        yield from _offset_table(one["offsets"], None)


def _pipeline_rows(facts: Document) -> list[tuple[str, str]]:
    return [
        ("pipeline", facts["name"]),
        ("generation", f"{facts['generation']}: {facts['why']}"),
        ("last --reset", facts["reset"] or "none"),
        ("last --ignore-checkpoint", facts["ignored"] or "none"),
    ]


def _query_rows(facts: Document) -> list[tuple[str, str]]:
    last = "none" if facts["last_batch"] is None else str(facts["last_batch"])
    if facts["age_seconds"] is not None:
        last += (
            f", committed {facts['committed_at']} ({span(facts['age_seconds'])} ago)"
        )
    rows = [("query", facts["id"] or "unknown"), ("last batch", last)]
    if facts["unfinished_batch"] is not None:
        planned = f"{facts['unfinished_batch']}, planned {facts['planned_at']}"
        rows.append(("unfinished batch", f"{planned}: will be repeated"))
    rows.append(("watermark", facts["watermark"] or "none"))
    return rows + [("note", note) for note in facts["notes"]]


def _commit_lines(facts: Document) -> Iterator[str]:
    failed = facts["failed_count"]
    letters = f", {failed} dead letters" if failed else ""
    yield ""
    yield f"batch {facts['batch']} wrote {facts['success_count']} rows{letters}:"
    rows: list[tuple[str, ...]] = [
        ("SINK", "TOPIC", "PARTITION", "WRITES", "UPSERTS", "DELETES", "BYTES")
    ]
    for sink in facts["sinks"]:
        for one in sink["partitions"] or [{}]:
            numbers = (str(one.get(key, "")) for key in _COUNTS)
            rows.append((sink["sink"], *numbers))
    yield from table(rows, indent="  ")
    for sink in facts["sinks"]:
        if sink["failed_attempts"]:
            yield f"  {sink['sink']}: {sink['failed_attempts']} failed attempts before"


def _offset_table(
    offsets: Sequence[Document], planned: Sequence[Document] | None
) -> Iterator[str]:
    ends = {(one["topic"], one["partition"]): one for one in planned or ()}
    starts = {(one["topic"], one["partition"]): one for one in offsets}
    rows: list[tuple[str, ...]] = [
        ("TOPIC", "PARTITION", "OFFSET", "PLANNED TO", "INCARNATION")
    ]
    for key in sorted({**starts, **ends}):
        one = starts.get(key) or ends[key]
        offset = str(starts[key]["offset"]) if key in starts else "new"
        end = str(ends[key]["offset"]) if key in ends else ""
        incarnation = one["incarnation"] or ""
        rows.append((one["topic"], str(one["partition"]), offset, end, incarnation))
    if planned is None:
        rows = [(*row[:3], row[4]) for row in rows]
    yield from table(rows, indent="  ")


def span(seconds: float) -> str:
    """A duration in its largest unit: ``42 s``, ``3 min``, ``5 h``, ``2 d``."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
