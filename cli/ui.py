"""``ui``: the pages for the browser, in a process of their own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from streamfactory.cli.draining import draining
from streamfactory.cli.parameters import interval_of, json_flag, overrides_of
from streamfactory.cli.status import Status
from streamfactory.cli.ui_endpoint import open_pages
from streamfactory.wiring.config.definition import Property

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamfactory.cli.printing import Printer


_LEAST: Final = 3.0
"""Seconds for which the pages use a result again: shorter intervals add no points."""


@click.command("ui")
@click.argument(
    "files",
    metavar="[PIPELINE]...",
    nargs=-1,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@click.option(
    "--address",
    default="127.0.0.1:9816",
    show_default=True,
    metavar="ADDRESS",
    help="Host and port; port 0 selects a free one.",
)
@click.option(
    "-o",
    "--option",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    callback=overrides_of,
    help="A setting of the pages, such as token, tls.certificate and tls.key. "
    "Repeatable.",
)
@click.option(
    "--every",
    default="15s",
    show_default=True,
    metavar="PERIOD",
    help="Interval between two points of the plots.",
)
@json_flag
@click.pass_obj
def ui_command(
    printer: Printer,
    *,
    files: Sequence[Path],
    address: str,
    settings: Mapping[str, str],
    every: str,
) -> Status:
    """Serve pages about streams and pipelines for the browser.

    Shows the streams of the catalogue and the pipelines in the folder pipelines beside
    it, and each PIPELINE (a file). Nothing is consumed or changed; with a token,
    pipelines can be run, dead letters be replayed, and positions and topics be changed;
    with edit=true as well, the files of streams and pipelines, too.
    Ends at SIGTERM or SIGINT.
    """
    interval = interval_of(every, least=_LEAST)
    with (
        draining(interrupt=False) as stop,
        open_pages(
            Property("address", address, "--address"),
            [Property(key, text, "--option") for key, text in settings.items()],
            files=files,
            every=interval,
        ) as server,
    ):
        printer.show({"location": server.location}, [f"pages: {server.location}"])
        sys.stdout.flush()
        stop.wait()
    return Status.FINE
