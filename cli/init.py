"""``init``: makes a project to start from."""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streamfactory.cli.parameters import json_flag
from streamfactory.wiring.core.places import is_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.cli.printing import Printer


@click.command("init")
@click.argument(
    "folder", type=click.Path(path_type=Path, file_okay=False), default=Path()
)
@json_flag
@click.pass_obj
def init_command(printer: Printer, *, folder: Path) -> None:
    """Create a project to start from in FOLDER, or here.

    It has streams in files and in Kafka, a pipeline, rows to begin with, a compose file
    for a broker, and a README. Files that are there already are never overwritten:
    nothing is written if one of them is.
    """
    with as_file(files("streamfactory.cli") / "starter") as starter:
        names = sorted(
            path.relative_to(starter).as_posix()
            for path in starter.rglob("*")
            if path.is_file()
        )
        there = [name for name in names if is_file(folder / name)]
        if there:
            msg = f"{', '.join(there)}: there already, and nothing is overwritten."
            raise click.BadParameter(msg, param_hint="'FOLDER'")
        for name in names:
            _write(folder / name, (starter / name).read_text(encoding="utf-8"))
    document = {"folder": str(folder), "files": names}
    printer.show(document, _lines(folder, names))


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        msg = f"{str(path)!r} cannot be written: {error.strerror}."
        raise click.BadParameter(msg, param_hint="'FOLDER'") from error


def _lines(folder: Path, names: list[str]) -> Iterator[str]:
    yield f"{folder}:"
    for name in names:
        yield f"  {name}"
    yield ""
    yield "To begin:"
    if folder != Path():
        yield f"  cd {folder}"
    yield "  streamfactory publish orders orders.csv --writer shop"
    yield "  streamfactory tail orders --from earliest --no-follow"
    yield "README.md leads from there."
