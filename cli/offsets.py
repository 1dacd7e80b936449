"""``offsets``: the positions of groups and pipelines, shown and changed."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streamfactory.cli.checkpoint.comparing import moved_lines
from streamfactory.cli.checkpoint.rewinding import force_option, rewind
from streamfactory.cli.parameters import OrderedGroup, json_flag, one_definition
from streamfactory.cli.positions import read_marks
from streamfactory.cli.recording import recorded
from streamfactory.cli.results import offsets_text
from streamfactory.cli.status import Status
from streamfactory.cli.topics.arguments import confirmed, deleting_options
from streamfactory.spark.checkpoints import differences
from streamfactory.spark.locating import locate
from streamfactory.spark.pipelines.detection import is_pipeline
from streamfactory.spark.targets import open_groups, readings
from streamfactory.spi import MisuseError, Position
from streamfactory.wiring.config.catalogue import Catalogue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from streamfactory.cli.printing import Printer
    from streamfactory.spark.checkpoints import Moved
    from streamfactory.wiring.reading.position_arguments import Mark, Marks

    Command = Callable[..., Any]

Document = dict[str, Any]

_target = click.argument("target", metavar="STREAM-or-PIPELINE")
_group = click.option("--group", metavar="GROUP", help="The group; not for a PIPELINE.")


@click.command("show")
@click.argument("target", metavar="STREAM-or-PIPELINE-or-GROUP")
@click.option("--group", metavar="GROUP", help="Only this group of the STREAM.")
@json_flag
@click.pass_obj
def show_command(printer: Printer, *, target: str, group: str | None) -> None:
    """Show the positions of the groups of a stream, or of a pipeline.

    The position is the next offset of each partition, in the form that `offsets set`
    accepts.
    """
    with ExitStack() as stack:
        if group is None:
            found = [
                {"kind": one.kind, "name": one.name, "position": one.position}
                for one in readings(
                    stack, target, printer.also_mask, Catalogue().snapshot()
                )
            ]
        else:
            _, groups = open_groups(stack, one_definition(target), printer.also_mask)
            position = groups.find([group])[group]
            found = [{"kind": "group", "name": group, "position": position}]
    printer.show({"target": target, "positions": found}, _shown(found))


def _shown(found: list[Document]) -> Iterator[str]:
    if not found:
        yield "no group has a position in this stream"
    for one in found:
        yield f"{one['kind']} {one['name']}: {offsets_text(one['position'])}"


def _changing(function: Command) -> Command:
    """What ``set`` and ``reset`` have in common."""
    for option in (json_flag, deleting_options, force_option, _group):
        function = option(function)
    return function


@click.command("set")
@_target
@click.argument(
    "places",
    metavar="POSITION|PARTITION=OFFSET...",
    nargs=-1,
    required=True,
    callback=read_marks,
)
@_changing
@click.pass_obj
def set_command(
    printer: Printer, /, *, target: str, places: Marks, **given: Any
) -> Status:
    """Set the position of a group, or of a pipeline, to offsets.

    POSITION is as `offsets show` prints it. Partitions that are not named stay where
    they are. Stop the members of the group, or the pipeline, first. Offsets that the
    stream does not have are refused. Of a pipeline, this is `checkpoint rewind`.
    """
    marks: Mapping[int, Mark] = places if isinstance(places, dict) else {}
    if not isinstance(places, Position) and not (
        marks and all(isinstance(mark, int) for mark in marks.values())
    ):
        msg = "wanted a position, or PARTITION=OFFSET for each partition."
        raise click.BadParameter(msg, param_hint="'POSITION|PARTITION=OFFSET...'")
    return _change(printer, target, places, "offsets set", **given)


@click.command("reset")
@_target
@click.option(
    "--to",
    "places",
    multiple=True,
    required=True,
    metavar="PLACE",
    callback=read_marks,
    help="earliest, latest, a time, or a period before now such as 2h; "
    "PARTITION=PLACE for one partition. Repeatable.",
)
@_changing
@click.pass_obj
def reset_command(
    printer: Printer, /, *, target: str, places: Marks, **given: Any
) -> Status:
    """Reset the position of a group, or of a pipeline, to a time or an end.

    A time that no message reaches is the latest offset. Partitions that are not named
    stay where they are. Stop the members of the group, or the pipeline, first. Of a
    pipeline, this is `checkpoint rewind`.
    """
    return _change(printer, target, places, "offsets reset", **given)


@click.group(
    "offsets", cls=OrderedGroup, commands=[show_command, set_command, reset_command]
)
def offsets_command() -> None:
    """Show and change the positions of groups and pipelines.

    A group stores its position in the source (Kafka's groups), in the folder of
    checkpoint.location, or on the stream's server.
    """


def _change(
    printer: Printer,
    target: str,
    places: Marks,
    command: str,
    *,
    group: str | None,
    force: bool,
    yes: bool,
    dry_run: bool,
) -> Status:
    if is_pipeline(Path(target)):
        if group is not None:
            msg = "--group is for streams: a pipeline has one position"
            raise MisuseError(msg, remedy="remove --group")
        why = f"moved by `{command}`"
        return rewind(
            printer, locate(target), places, why, force=force, yes=yes, dry_run=dry_run
        )
    if group is None:
        msg = "--group is required for a stream."
        raise click.UsageError(msg)
    if force:
        msg = "--force is for pipelines."
        raise click.UsageError(msg)
    with ExitStack() as stack:
        source, groups = open_groups(stack, one_definition(target), printer.also_mask)
        change = groups.plan(group, places)
        document: Document = {
            "stream": source.config.name,
            "group": group,
            "outcome": "dry-run",
            "position": change.after,
            "partitions": [
                move
                for move in differences(change.before, change.after)
                if move.before != move.after or move.remark
            ],
        }
        if not dry_run:
            if confirmed(printer, list(_lines(document)), yes=yes):
                name = f"{group} in {source.config.name}"
                with recorded(
                    "operate",
                    "group",
                    name,
                    "moved",
                    before=change.before.to_json(),
                    after=change.after.to_json(),
                ):
                    groups.apply(change)
                document["outcome"] = "done"
            else:
                document["outcome"] = "declined"
        printer.show(document, _lines(document))
    declined = document["outcome"] == "declined"
    return Status.INTERRUPTED if declined else Status.FINE


def _lines(document: Document) -> Iterator[str]:
    moves: list[Moved] = document["partitions"]
    text = {"done": "set", "dry-run": "would be set", "declined": "nothing was done"}
    what = text[document["outcome"]]
    yield f"group {document['group']} in {document['stream']}: {what}"
    if not moves:
        yield "  no partition moves"
        return
    yield from moved_lines(moves, new="new")
