"""The options ``--ui`` of commands that run for long, and the pages they serve."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streamfactory.spi import NotInstalled

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streamfactory.cli.printing import Printer
    from streamfactory.ui.server import PageServer

ui_option = click.option(
    "--ui",
    "ui_address",
    metavar="ADDRESS",
    help="Serve pages for the browser: 127.0.0.1:9816.",
)

ui_token_option = click.option(
    "--ui-token-file",
    "ui_token",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="With --ui: a file with a token, which allows actions, and other addresses "
    "than loopback.",
)


def open_pages(
    address: str,
    token_file: Path | None,
    *,
    hosts: Sequence[str] = (),
    files: Sequence[Path] = (),
    every: float | None = None,
) -> PageServer:
    """Serve the pages until the server is closed.

    Raises:
        ConfigError: config; the address or the token cannot be used.
        NotInstalled: plugin; Flask or waitress is missing.
    """
    try:
        from streamfactory.ui.access import read_token
        from streamfactory.ui.server import EVERY, PageServer
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("streamfactory"):
            raise
        msg = f"the pages need {error.name}, which is not installed"
        raise NotInstalled(msg, remedy="run: pip install 'streamfactory[ui]'") from None
    token = None if token_file is None else read_token(token_file)
    seconds = EVERY if every is None else every
    return PageServer(address, token=token, hosts=hosts, files=files, every=seconds)


@contextmanager
def pages_endpoint(
    address: str | None,
    token_file: Path | None,
    printer: Printer,
    files: Sequence[Path] = (),
) -> Iterator[None]:
    """Serve the pages within the block, where an address is given.

    Raises:
        ConfigError: config; the address or the token cannot be used.
        NotInstalled: plugin; Flask or waitress is missing.
    """
    if address is None:
        if token_file is not None:
            msg = "--ui-token-file has no effect without --ui."
            raise click.UsageError(msg)
        yield
        return
    with open_pages(address, token_file, files=files) as server:
        printer.note("pages", server.location)
        yield
