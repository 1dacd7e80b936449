"""``top``: a live table of streams, groups and pipelines."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streamfactory.cli.draining import draining
from streamfactory.cli.parameters import interval_of, json_flag
from streamfactory.cli.printing import JsonPrinter
from streamfactory.cli.status import Status
from streamfactory.cli.top.lines import ORDERS, frame_document, frame_lines
from streamfactory.cli.top.observing import (
    CatalogueObserver,
    ProcessObserver,
    observe,
)
from streamfactory.spi import ConfigError, NotInstalled
from streamfactory.wiring.core.places import is_file

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

    from streamfactory.cli.printing import Printer
    from streamfactory.cli.top.observing import Frame


@click.command("top")
@click.argument("targets", metavar="[URL|PIPELINE]...", nargs=-1)
@click.option(
    "--every",
    metavar="PERIOD",
    default="2s",
    show_default=True,
    help="Interval between two frames, and what rates are computed over.",
)
@click.option(
    "--sort",
    "order",
    type=click.Choice(ORDERS),
    default="name",
    show_default=True,
    help="The order of the lines.",
)
@click.option("--once", is_flag=True, help="Print one frame, and end.")
@json_flag
@click.pass_obj
def top_command(
    printer: Printer, *, targets: Sequence[str], every: str, order: str, once: bool
) -> Status:
    """Show rates, lag, losses and dead letters of streams and pipelines, live.

    URL is the endpoint of metrics of a process (--metrics): its readers, writers,
    spools and pipelines are shown. Without one, the streams of the catalogue, their
    groups, the pipelines in the folder pipelines beside it, and each PIPELINE (a file)
    are shown; their rates and lag are in offsets. Nothing is consumed. Without a
    terminal, with --once and with --json, prints one frame after PERIOD.
    """
    interval = interval_of(every, least=0.1)
    observers = _observers(targets)
    last: Frame | None = None

    def next_frame() -> Frame:
        nonlocal last
        found = observe(observers)
        shown = found if last is None else found.after(last)
        last = found
        return shown

    single = once or isinstance(printer, JsonPrinter)
    if sys.stdout.isatty() and sys.stdin.isatty() and not single:
        show_live = _live()
        with draining(interrupt=False) as stop:
            show_live(next_frame, interval, stop, order)
        return Status.FINE
    with draining() as stop:
        next_frame()
        if stop.wait(interval):
            return Status.INTERRUPTED
        frame = next_frame()
    printer.show(frame_document(frame, order), frame_lines(frame, order))
    return Status.FINE


def _observers(
    targets: Sequence[str],
) -> list[CatalogueObserver | ProcessObserver]:
    """Of the processes named, and of the catalogue unless only processes are."""
    files = [Path(target) for target in targets if "://" not in target]
    for path in files:
        if not is_file(path):
            msg = f"{str(path)!r} is no file of a pipeline, and no URL"
            raise ConfigError(msg, remedy="give a file, or http://HOST:PORT")
    found: list[CatalogueObserver | ProcessObserver] = [
        ProcessObserver(target) for target in targets if "://" in target
    ]
    return found if found and not files else [CatalogueObserver(files), *found]


def _live() -> Callable[[Callable[[], Frame], float, threading.Event, str], None]:
    try:
        from streamfactory.cli.top.screen import show_live
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("streamfactory"):
            raise
        msg = f"the live table needs {error.name}, which is not installed"
        remedy = "run: pip install 'streamfactory[top]', or use --once"
        raise NotInstalled(msg, remedy=remedy) from None
    return show_live
