"""``prove``: kills writers of a stream type, and counts what is lost or there twice."""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streamfactory.cli.conformance import quiet_log
from streamfactory.cli.parameters import json_flag
from streamfactory.cli.results import Result, count
from streamfactory.cli.status import Status
from streamfactory.conformance.proving import Verdict, prove_writing, unprovable
from streamfactory.conformance.subject import find_subject
from streamfactory.spi import Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.cli.printing import Printer


@dataclass(frozen=True, slots=True)
class Proved(Result):
    """The answer of ``prove``."""

    type: str
    rounds: int
    """Rounds that were made."""
    kills: int
    lost: int
    twice: int
    problem: str | None
    """Why it ended before all rounds were made."""
    seconds: float
    seed: int

    def lines(self) -> Iterator[str]:
        """The answer as text; the last line is the verdict."""
        made = f"{count(self.rounds, 'round')}, {count(self.kills, 'kill')}"
        yield f"{self.type}: {made} in {self.seconds:.1f} s (seed {self.seed})"
        if self.problem is not None:
            yield f"ended early: {self.problem}"
        yield f"lost={self.lost} twice={self.twice}"


@click.command("prove")
@click.argument("type_name", metavar="TYPE")
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Kills, each followed by a restart.",
)
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Where chance begins."
)
@click.option(
    "--harness",
    metavar="MODULE:CLASS",
    help="Import this harness, from the current folder too; else the registered one.",
)
@json_flag
@click.pass_obj
def prove_command(
    printer: Printer, *, type_name: str, rounds: int, seed: int, harness: str | None
) -> Status:
    """Kill writers of a stream TYPE with SIGKILL, and compare rows in with rows out.

    Each round writes an epoch in a process that is killed inside commit, or at any
    time, and writes it again in another one, as a restarted writer does. The type has
    to claim durable, shared and idempotent, and its harness has rows and visible. Ends
    with lost=0 twice=0, or with status 1.
    """
    if harness is not None:
        # A console script does not look where it is started; `python -m` does.
        sys.path.append(str(Path.cwd()))
    subject = find_subject(type_name.lower(), harness)
    began, verdict, made = time.monotonic(), Verdict(), 0
    with quiet_log(), tempfile.TemporaryDirectory(prefix="prove-") as folder:
        why = unprovable(subject, _made(Path(folder, "look")))
        if why is not None:
            msg = f"writers of {subject.backend.name!r} cannot be proved: {why}"
            raise Unsupported(msg)
        place = _made(Path(folder, "rounds"))
        for verdict in prove_writing(subject, place, rounds, seed):
            made += not verdict.problem
            printer.progress(f"[{made}/{rounds}] {verdict}")
            if not verdict.good:
                break
    printer.progress("")
    seconds = time.monotonic() - began
    printer.show(
        Proved(
            subject.backend.name,
            made,
            verdict.kills,
            verdict.lost,
            verdict.twice,
            verdict.problem or None,
            seconds,
            seed,
        )
    )
    return Status.FINE if verdict.good else Status.FAILED


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
