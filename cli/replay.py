"""``replay-dead-letters``: bad messages through again, after a fix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from streamfactory.cli.draining import Progress, draining
from streamfactory.cli.parameters import class_paths_flag, json_flag, one_definition
from streamfactory.cli.results import Result, count
from streamfactory.cli.status import Status
from streamfactory.transfer.replaying import Replayed, open_replay
from streamfactory.wiring.config.catalogue import Catalogue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.cli.printing import Printer


@dataclass(frozen=True, slots=True)
class ReplayAnswer(Result):
    """The answer of ``replay-dead-letters``."""

    dead_letters: str
    to: str
    writer: str | None
    """None where there was no letter."""
    rows: int
    """Written."""
    bad_again: int
    """Letters that are written again, behind the others."""
    others: int
    """Letters of other streams, left alone."""
    epochs: int
    complete: bool

    def lines(self) -> Iterator[str]:
        """The answer as text."""
        told = f"{count(self.rows, 'row')} in {count(self.epochs, 'epoch')}"
        yield f"{self.dead_letters} to {self.to}: {told}"
        if self.bad_again:
            told = count(self.bad_again, "letter")
            yield f"bad again: {told}, which the next replay meets"
        if self.others:
            told = count(self.others, "letter")
            yield f"{told} of other streams left alone: name one with --from"
        if not self.complete:
            yield "stopped before the end: the same command goes on from there"


@click.command("replay-dead-letters")
@click.argument("dead_letters", metavar="DEAD-LETTERS")
@click.option(
    "--to", "target", required=True, metavar="STREAM", help="Where good rows go."
)
@click.option(
    "--from",
    "origin",
    metavar="STREAM",
    help="Whose letters, as it is configured now; else that of the first letter.",
)
@click.option("--writer", metavar="ID", help="Who writes; else a name made of these.")
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
    """Send dead letters through again, after what was wrong has been put right.

    They go through the decoder of the stream that they come from, as it is configured
    now, and into STREAM; a STREAM whose messages stay as they are (raw), or that they
    come from, gets them as they were. Exactly once where STREAM remembers its writers:
    run again, it goes on behind the last letter. What is bad again is a dead letter
    again. Each STREAM is NAME-OR-FILE.
    """
    replay = open_replay(
        one_definition(dead_letters, {}),
        one_definition(target, {}),
        Catalogue().get,
        of=None if origin is None else one_definition(origin, {}),
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
        done = replay.run(stop, progress.tell)
        progress.wipe()
        name = None if copy is None else copy.writer_id
        printer.show(_answer(dead_letters, target, name, done))
    return Status.FINE if done.complete else Status.INTERRUPTED


def _answer(
    dead_letters: str, target: str, writer: str | None, done: Replayed
) -> ReplayAnswer:
    return ReplayAnswer(
        dead_letters,
        target,
        writer,
        done.rows,
        done.again,
        done.others,
        done.epochs,
        done.complete,
    )
