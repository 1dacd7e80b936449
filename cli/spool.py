"""``spool``: receivers of streams as a service, in the foreground."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streamfactory.cli.draining import draining
from streamfactory.cli.metrics_endpoint import (
    metrics_endpoint,
    metrics_option,
    remote_option,
    telemetry,
    telemetry_option,
)
from streamfactory.cli.parameters import (
    Overrides,
    class_paths_flag,
    interval_of,
    json_flag,
    log_format_option,
    one_definition,
    set_option,
)
from streamfactory.cli.results import count
from streamfactory.cli.status import Status, status_of
from streamfactory.cli.ui_endpoint import (
    pages_endpoint,
    ui_option,
    ui_settings_option,
)
from streamfactory.spi import Role, StorageFailed
from streamfactory.wiring.config.guarantees import offline_verdict
from streamfactory.wiring.config.loading import load
from streamfactory.wiring.core.shown import all_of
from streamfactory.wiring.receiving.service import SpoolService

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streamfactory.cli.printing import Printer
    from streamfactory.wiring.receiving.service import StreamReport


@click.command("spool")
@click.argument("targets", metavar="NAME-OR-FILE...", nargs=-1, required=True)
@set_option
@click.option(
    "--every",
    metavar="PERIOD",
    default="10s",
    show_default=True,
    help="Interval between lines of statistics.",
)
@click.option(
    "--statistics",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the statistics to FILE too, as JSON.",
)
@metrics_option
@remote_option
@ui_option
@ui_settings_option
@class_paths_flag
@telemetry_option
@log_format_option
@json_flag
@click.pass_obj
def spool_command(
    printer: Printer,
    *,
    targets: tuple[str, ...],
    overrides: Overrides,
    every: str,
    statistics: Path | None,
    metrics: str | None,
    metrics_remote: bool,
    ui_address: str | None,
    ui_settings: dict[str, str],
    opentelemetry: bool,
    allow_class_paths: bool,
) -> Status:
    """Receive streams into their spools until SIGTERM or SIGINT.

    Each stream names its spool with spool.path. When a sender ends, the receiver waits
    for the next one; failures are retried with back-off, and do not affect other
    streams. The first signal commits what was received; a second one stops at once.
    """
    interval = interval_of(every, least=0.01)
    configured = [
        load(
            one_definition(target, overrides),
            "read",
            allow_class_paths=allow_class_paths,
        )
        for target in targets
    ]
    printer.mask = all_of([one.config.mask for one in configured])

    def report(reports: Sequence[StreamReport]) -> None:
        for one in reports:
            printer.note("statistics", _line(one), stream=one.stream, rows=one.rows)
        if statistics is not None:
            plain = [one.to_plain() for one in reports]
            _write(statistics, printer.safe(json.dumps(plain)))

    with (
        telemetry(opentelemetry),
        SpoolService(configured) as service,
        metrics_endpoint(
            metrics,
            printer,
            allow_remote=metrics_remote,
            problems=lambda: [printer.safe(p) for p in _problems(service.reports())],
        ),
        pages_endpoint(ui_address, ui_settings, printer),
        draining(patient=True) as stop,
    ):
        for one in configured:
            verdict = offline_verdict(one.config, one.backend, Role.READ)
            name = one.config.name
            printer.note("note", f"{name}: guarantee: {verdict}", stream=name)
        ended = service.run(stop, interval=interval, on_reports=report)
        service.close()
        reports = service.reports()
        report(reports)
        streams = [one.to_plain() for one in reports]
        printer.show({"streams": streams}, _summary(streams))
        failure = ended or service.error
    if failure is not None:
        printer.error(failure)
        return status_of(failure)
    return Status.FINE


def _summary(streams: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What was received, when the command ends."""
    for stream in streams:
        for part in stream["partitions"]:
            stored = f"{count(part['rows'], 'row')}, {count(part['lost'], 'loss')}"
            ended = "" if part["error"] is None else f" ({part['error']})"
            yield f"{stream['stream']} {part['partition']}: {stored}{ended}"
        if not stream["partitions"]:
            why = stream["error"] or "no sender connected"
            yield f"{stream['stream']}: nothing received ({why})"


def _problems(reports: Sequence[StreamReport]) -> list[str]:
    """Why streams or partitions are not received, for health checks."""
    found = []
    for report in reports:
        if report.state == "failed":
            found.append(f"{report.stream}: {report.error}")
        found += [
            f"{report.stream} {one.partition}: {one.state}: {one.error}"
            for one in report.partitions
            if one.state in ("blocked", "failed", "fenced")
        ]
    return found


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
