"""``replay-dead-letters``: dead letters processed again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from streamfactory.cli.draining import Progress, draining
from streamfactory.cli.parameters import class_paths_flag, json_flag, one_definition
from streamfactory.cli.results import count
from streamfactory.cli.status import Status
from streamfactory.transfer.replaying import open_replay
from streamfactory.wiring.config.catalogue import Catalogue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.cli.printing import Printer
    from streamfactory.transfer.replaying import Replayed


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
    allow_class_paths: bool,
) -> Status:
    """Process dead letters again, after the cause was fixed.

    They are decoded as the stream that they come from is configured now, and written
    to STREAM. They are written unchanged if STREAM has the decoder raw, or is the
    stream that they come from. Exactly once if STREAM stores the position of its
    writers: the same command continues after the last dead letter. Messages that fail
    again become dead letters again. Each STREAM is NAME-OR-FILE.
    """
    replay = open_replay(
        one_definition(dead_letters),
        one_definition(target),
        Catalogue().get,
        of=None if origin is None else one_definition(origin),
        writer_id=writer,
        allow_class_paths=allow_class_paths,
    )
    with replay, draining() as stop:
        copy = replay.copy
        if copy is not None:
            printer.mask = copy.mask
            printer.note("note", f"writer: {copy.writer_id}")
            printer.note("note", f"guarantee: {copy.guarantee}")
        progress = Progress(printer, lambda: None)
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
                "epochs": done.epochs,
                "complete": done.complete,
            },
            _lines(dead_letters, target, done),
        )
    return Status.FINE if done.complete else Status.INTERRUPTED


def _lines(dead_letters: str, target: str, done: Replayed) -> Iterator[str]:
    rows = f"{count(done.rows, 'row')} in {count(done.epochs, 'epoch')}"
    yield f"{dead_letters} to {target}: {rows}"
    if done.again:
        yield f"failed again: {count(done.again, 'dead letter')}"
    if done.others:
        others = count(done.others, "dead letter")
        yield f"{others} of other streams skipped: select a stream with --from"
    if not done.complete:
        yield "stopped before the end: the same command continues from there"
