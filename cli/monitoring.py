"""``monitoring``: files for Grafana and Prometheus."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from streamfactory.cli.parameters import json_flag
from streamfactory.cli.status import Status
from streamfactory.spi import StorageFailed
from streamfactory.wiring.metrics.alerts import rules_text
from streamfactory.wiring.metrics.dashboard import dashboard_text

if TYPE_CHECKING:
    from streamfactory.cli.printing import Printer

_FILES: Final = {
    "dashboard": ("streamfactory-dashboard.json", dashboard_text),
    "alerts": ("streamfactory-alerts.yml", rules_text),
}


@click.group("monitoring")
def monitoring_command() -> None:
    """Files for monitoring tools, over the metrics of docs/metrics.md."""


@monitoring_command.command("export")
@click.argument(
    "kinds", metavar="[dashboard|alerts]...", nargs=-1, type=click.Choice([*_FILES])
)
@click.option(
    "--to",
    "folder",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write files there; those that exist are replaced.",
)
@json_flag
@click.pass_obj
def export_command(
    printer: Printer, kinds: tuple[str, ...], folder: Path | None
) -> Status:
    """Print or write a Grafana dashboard and Prometheus alert rules.

    Without --to one kind must be named, and its text is printed.
    """
    if folder is None and len(kinds) != 1:
        msg = "name one of dashboard and alerts, or a folder with --to."
        raise click.UsageError(msg)
    made = {}
    for kind in dict.fromkeys(kinds or _FILES):
        name, text = _FILES[kind]
        made[kind] = text() if folder is None else _write(folder / name, text())
    if folder is None:
        lines = [text.removesuffix("\n") for text in made.values()]
    else:
        lines = [f"{kind}: {path}" for kind, path in made.items()]
    printer.show(made, lines)
    return Status.FINE


def _write(path: Path, text: str) -> str:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        msg = f"{path} cannot be written: {error.strerror}"
        raise StorageFailed(msg, remedy="name another folder with --to") from error
    return str(path)
