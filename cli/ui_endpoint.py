"""The options ``--ui`` of commands that run for long, and the pages they serve."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from streamfactory.cli.parameters import overrides_of
from streamfactory.spi import NotInstalled
from streamfactory.wiring.config.definition import Property
from streamfactory.wiring.core.guard import log_warnings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from streamfactory.cli.printing import Printer
    from streamfactory.ui.server import PageServer

ui_option = click.option(
    "--ui",
    "ui_address",
    metavar="ADDRESS",
    help="Serve pages for the browser: 127.0.0.1:9816.",
)

ui_settings_option = click.option(
    "--ui-option",
    "ui_settings",
    multiple=True,
    metavar="KEY=VALUE",
    callback=overrides_of,
    help="With --ui: a setting of the pages, such as token, tls.certificate and "
    "tls.key. Repeatable.",
)


def open_pages(
    address: Property,
    settings: Sequence[Property],
    *,
    files: Sequence[Path] = (),
    every: float | None = None,
) -> PageServer:
    """Serve the pages until the server is closed.

    Raises:
        ConfigError: config; a setting cannot be used.
        NotInstalled: plugin; Flask or waitress is missing.
    """
    try:
        from streamfactory.ui.server import EVERY, PageServer
        from streamfactory.ui.settings import page_settings
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("streamfactory"):
            raise
        msg = f"the pages need {error.name}, which is not installed"
        raise NotInstalled(msg, remedy="run: pip install 'streamfactory[ui]'") from None
    config = page_settings([address, *settings])
    log_warnings(config)
    return PageServer(config, files=files, every=EVERY if every is None else every)


@contextmanager
def pages_endpoint(
    address: str | None,
    settings: Mapping[str, str],
    printer: Printer,
    files: Sequence[Path] = (),
) -> Iterator[None]:
    """Serve the pages within the block, where an address is given.

    Raises:
        ConfigError: config; a setting cannot be used.
        NotInstalled: plugin; Flask or waitress is missing.
    """
    if address is None:
        if settings:
            msg = "--ui-option has no effect without --ui."
            raise click.UsageError(msg)
        yield
        return
    given = [Property(key, text, "--ui-option") for key, text in settings.items()]
    with open_pages(Property("address", address, "--ui"), given, files=files) as server:
        printer.note("pages", server.location)
        yield
