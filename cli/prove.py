"""``prove``: kills writers and readers of a stream type, and counts rows."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from streamfactory.cli.conformance import quiet_log
from streamfactory.cli.parameters import json_flag
from streamfactory.cli.results import count
from streamfactory.cli.status import Status
from streamfactory.conformance.proving import Verdict, prove_writing, unprovable
from streamfactory.conformance.proving_groups import prove_groups, unprovable_groups
from streamfactory.conformance.subject import find_subject
from streamfactory.spi import Unsupported
from streamfactory.wiring.core.plain import plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.cli.printing import Printer

_PARTS: Final = {
    "writers": (unprovable, prove_writing),
    "groups": (unprovable_groups, prove_groups),
}


@click.command("prove")
@click.argument("type_name", metavar="TYPE")
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Kills of each part, each followed by a restart.",
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
    """Kill writers and readers of a stream TYPE with SIGKILL; count rows.

    Writers: each round writes an epoch in a process that is killed inside commit, or at
    any time, and writes it again in another one, as a restarted writer does. The type
    has to claim durable, shared and idempotent, and its harness has rows and visible.

    Groups: each round kills a member between a read and its commit, inside commit, or
    at any time, and starts another one. The group is the source's own if it has one;
    acknowledgements are part of commit. The type has to claim replayable and shared,
    or redelivers.

    Ends with lost=0 twice=0, or with status 1.
    """
    if harness is not None:
        # A console script does not look where it is started; `python -m` does.
        sys.path.append(str(Path.cwd()))
    subject = find_subject(type_name.lower(), harness)
    name = subject.backend.name
    parts: list[dict[str, Any]] = []
    not_proved: dict[str, str] = {}
    with quiet_log(), tempfile.TemporaryDirectory(prefix="prove-") as folder:
        for what, (unprovable, prove) in _PARTS.items():
            why = unprovable(subject, _made(Path(folder, f"{what}-look")))
            if why is not None:
                not_proved[what] = why
                continue
            began, verdict, made = time.monotonic(), Verdict(), 0
            for verdict in prove(subject, _made(Path(folder, what)), rounds, seed):
                made += not verdict.problem
                printer.progress(f"{what} [{made}/{rounds}] {verdict}")
                if not verdict.good:
                    break
            seconds = time.monotonic() - began
            part = {"what": what, "rounds": made, **plain(verdict), "seconds": seconds}
            parts.append(part | {"problem": verdict.problem or None})
    printer.progress("")
    if not parts:
        reasons = "; ".join(f"{what}: {why}" for what, why in not_proved.items())
        msg = f"{name!r} cannot be proved: {reasons}"
        raise Unsupported(msg)
    sums = ("rounds", "kills", "lost", "twice", "seconds")
    problems = (part["problem"] for part in parts if part["problem"] is not None)
    document = {
        "type": name,
        "parts": parts,
        "not_proved": not_proved,
        **{key: sum(part[key] for part in parts) for key in sums},
        "problem": next(problems, None),
        "seed": seed,
    }
    printer.show(document, _lines(document))
    bad = document["lost"] or document["twice"] or document["problem"]
    return Status.FAILED if bad else Status.FINE


def _lines(document: dict[str, Any]) -> Iterator[str]:
    """The result as text; the last line is the verdict."""
    for part in document["parts"]:
        made = f"{count(part['rounds'], 'round')}, {count(part['kills'], 'kill')}"
        seconds = f"{part['seconds']:.1f} s (seed {document['seed']})"
        yield f"{document['type']}, {part['what']}: {made} in {seconds}"
        if part["problem"] is not None:
            yield f"ended early: {part['problem']}"
    for what, why in document["not_proved"].items():
        yield f"{document['type']}, {what}: not proved: {why}"
    yield f"lost={document['lost']} twice={document['twice']}"


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
