"""``replay-dead-letters``: dead letters processed again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypedDict

import click

from streamfactory.cli.draining import Progress, draining
from streamfactory.cli.parameters import class_paths_flag, json_flag, one_definition
from streamfactory.cli.recording import recorded
from streamfactory.cli.results import count
from streamfactory.cli.status import Status
from streamfactory.transfer.replaying import find_outstanding, open_replay
from streamfactory.wiring.config.catalogue import Catalogue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyarrow import Array, RecordBatch

    from streamfactory.cli.printing import Printer
    from streamfactory.transfer.replaying import Replayed
    from streamfactory.wiring.config.definition import StreamDefinition

_SHOWN: Final = 20
"""Dead letters that ``--dry-run`` prints."""
_COLUMNS: Final = (
    "stream",
    "topic",
    "partition",
    "offset",
    "ordinal",
    "incarnation",
    "error_code",
    "error_message",
    "failed_at",
)


@click.command("replay-dead-letters")
@click.argument("dead_letters", metavar="DEAD-LETTERS")
@click.option(
    "--to", "target", required=True, metavar="STREAM", help="Stream for the good rows."
)
@click.option(
    "--from",
    "origin",
    metavar="STREAM",
    help="Replay the dead letters of this stream; by default, of the stream of the "
    "first one.",
)
@click.option(
    "--writer", metavar="ID", help="Writer id; by default made of the stream names."
)
@click.option(
    "--dry-run", is_flag=True, help="Print the dead letters that would be replayed."
)
@class_paths_flag
@json_flag
@click.pass_obj
def replay_command(
    printer: Printer,
    *,
    dead_letters: str,
    target: str,
    origin: str | None,
    writer: str | None,
    dry_run: bool,
    allow_class_paths: bool,
) -> Status:
    """Process dead letters again, after the cause was fixed.

    They are decoded as the stream that they come from is configured now, and written
    to STREAM. They are written unchanged if STREAM has the decoder raw, or is the
    stream that they come from. Exactly once if STREAM stores the position of its
    writers: each message once, whatever is repeated. Messages that fail again stay
    unresolved, for the same command after the next fix. Each STREAM is NAME-OR-FILE.
    """
    ends: _Ends = {
        "letters": one_definition(dead_letters),
        "to": one_definition(target),
        "find": Catalogue().get,
        "of": None if origin is None else one_definition(origin),
        "writer_id": writer,
        "allow_class_paths": allow_class_paths,
    }
    if dry_run:
        return _show_outstanding(printer, dead_letters, target, ends)
    replay = open_replay(**ends)
    with replay, draining() as stop:
        copy = replay.copy
        if copy is not None:
            printer.mask = copy.mask
            printer.note("note", f"writer: {copy.writer_id}")
            printer.note("note", f"guarantee: {copy.guarantee}")
        progress = Progress(printer, lambda: None)
        what = f"replayed into {target}"
        with recorded("operate", "stream", dead_letters, what):
            done = replay.run(stop, progress.report)
        progress.wipe()
        printer.show(
            {
                "dead_letters": dead_letters,
                "to": target,
                "writer": None if copy is None else copy.writer_id,
                "rows": done.rows,
                "bad_again": done.again,
                "others": done.others,
                "repeated": done.repeated,
                "epochs": done.epochs,
                "complete": done.complete,
            },
            _lines(dead_letters, target, done),
        )
    return Status.FINE if done.complete else Status.INTERRUPTED


class _Ends(TypedDict):
    """Arguments of `open_replay` and `find_outstanding`."""

    letters: StreamDefinition
    to: StreamDefinition
    find: Callable[[str], StreamDefinition]
    of: StreamDefinition | None
    writer_id: str | None
    allow_class_paths: bool


def _show_outstanding(
    printer: Printer, dead_letters: str, target: str, ends: _Ends
) -> Status:
    """Print what a replay would process: counts, and a line for each of the first."""
    shown: list[dict[str, Any]] = []

    def show(
        _partition: object, rows: RecordBatch, _places: object, due: Array
    ) -> None:
        some = rows.filter(due).slice(0, _SHOWN - len(shown))
        shown.extend(some.select(_COLUMNS).to_pylist())

    found = find_outstanding(**ends, on_letters=show)
    unresolved = 0 if found is None else found.unresolved
    document = {
        "dead_letters": dead_letters,
        "to": target,
        "writer": None if found is None else found.writer_id,
        "unresolved": unresolved,
        "resolved": 0 if found is None else found.resolved,
        "others": 0 if found is None else found.others,
        "letters": shown,
    }
    printer.show(document, _outstanding_lines(document, unresolved - len(shown)))
    return Status.FINE


def _outstanding_lines(document: dict[str, Any], more: int) -> Iterator[str]:
    unresolved = count(document["unresolved"], "dead letter")
    resolved = document["resolved"]
    yield f"{unresolved} to replay into {document['to']}, {resolved} resolved"
    for one in document["letters"]:
        row = "" if one["ordinal"] is None else f" row {one['ordinal']}"
        place = f"{one['topic']}-{one['partition']} offset {one['offset']}{row}"
        yield f"  {place}: {one['error_code']}: {one['error_message']}"
    if more:
        yield f"  and {more:,} more"
    if document["others"]:
        others = count(document["others"], "dead letter")
        yield f"{others} of other streams: select a stream with --from"


def _lines(dead_letters: str, target: str, done: Replayed) -> Iterator[str]:
    rows = f"{count(done.rows, 'row')} in {count(done.epochs, 'epoch')}"
    yield f"{dead_letters} to {target}: {rows}"
    if done.again:
        yield f"failed again: {count(done.again, 'dead letter')}"
    if done.repeated:
        repeated = count(done.repeated, "dead letter")
        yield f"{repeated} skipped: their messages were counted before"
    if done.others:
        others = count(done.others, "dead letter")
        yield f"{others} of other streams skipped: select a stream with --from"
    if not done.complete:
        yield "stopped before the end: the same command continues from there"
