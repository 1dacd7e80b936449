"""``spool``: receivers of streams as a service, in the foreground."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streamfactory.cli.draining import draining
from streamfactory.cli.parameters import (
    class_paths_flag,
    json_flag,
    one_definition,
    set_option,
)
from streamfactory.cli.results import Result, count
from streamfactory.cli.status import Status, status_of
from streamfactory.spi import PERIOD, Role, StorageFailed
from streamfactory.wiring.config.guarantees import offline_verdict
from streamfactory.wiring.config.loading import load
from streamfactory.wiring.receiving.service import SpoolService

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streamfactory.cli.printing import Printer
    from streamfactory.wiring.receiving.service import StreamReport


@dataclass(frozen=True, slots=True)
class SpoolAnswer(Result):
    """The answer of ``spool``, when it ends."""

    streams: list[dict[str, Any]]

    def lines(self) -> Iterator[str]:
        """The answer as text."""
        for stream in self.streams:
            for part in stream["partitions"]:
                stored = f"{count(part['rows'], 'row')}, {count(part['lost'], 'loss')}"
                ended = "" if part["error"] is None else f" ({part['error']})"
                yield f"{stream['stream']} {part['partition']}: {stored}{ended}"
            if not stream["partitions"]:
                why = stream["error"] or "no sender came"
                yield f"{stream['stream']}: nothing received ({why})"


@click.command("spool")
@click.argument("targets", metavar="NAME-OR-FILE...", nargs=-1, required=True)
@set_option
@click.option(
    "--every",
    metavar="PERIOD",
    default="10s",
    show_default=True,
    help="How often a line of statistics is printed.",
)
@click.option(
    "--statistics",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the statistics there too, as JSON, each time.",
)
@class_paths_flag
@json_flag
@click.pass_obj
def spool_command(
    printer: Printer,
    *,
    targets: tuple[str, ...],
    overrides: dict[str, str],
    every: str,
    statistics: Path | None,
    allow_class_paths: bool,
) -> Status:
    """Receive streams into their spools until SIGTERM or SIGINT.

    Each stream names its spool with spool.path. A sender that ends is waited for again,
    a failure is tried again with back-off, and a stream that cannot be received stops
    no other one. The first signal commits what was received; a second one stops at
    once.
    """
    try:
        interval = PERIOD.parse(every) / 1000
    except ValueError as error:
        msg = f"--every {every!r} {error}"
        raise click.UsageError(msg) from None
    configured = [
        load(
            one_definition(target, overrides),
            "read",
            allow_class_paths=allow_class_paths,
        )
        for target in targets
    ]

    def mask(text: str) -> str:
        for one in configured:
            text = one.config.mask(text)
        return text

    printer.mask = mask

    def tell(reports: Sequence[StreamReport]) -> None:
        for report in reports:
            printer.note("statistics", _line(report))
        if statistics is not None:
            _write(
                statistics, printer.safe(json.dumps([r.to_plain() for r in reports]))
            )

    with SpoolService(configured) as service, draining() as stop:
        for one in configured:
            verdict = offline_verdict(one.config, one.backend, Role.READ)
            printer.note("note", f"{one.config.name}: guarantee: {verdict}")
        ended = service.run(stop, interval=max(0.01, interval), tell=tell)
        service.close()
        reports = service.reports()
        tell(reports)
        printer.show(SpoolAnswer([report.to_plain() for report in reports]))
        failure = ended or service.error
    if failure is not None:
        printer.error(failure)
        return status_of(failure)
    return Status.FINE


def _line(report: StreamReport) -> str:
    """One line of statistics."""
    lost = sum(partition.lost for partition in report.partitions)
    states = sorted({partition.state for partition in report.partitions})
    state = ", ".join(states) or report.state
    facts = f"{report.rows:,} rows, {count(lost, 'loss')}, {state}"
    why = next((p.error for p in report.partitions if p.error), report.error)
    return f"{report.stream}: {facts}" + (f" ({why})" if why else "")


def _write(path: Path, text: str) -> None:
    """Replace a file in one step.

    Raises:
        StorageFailed: permanent.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text + "\n", encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        msg = f"statistics cannot be written to {path}: {error}"
        raise StorageFailed(msg) from error
