"""``init``: makes a project to start from."""

from __future__ import annotations

import json
import shutil
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streamfactory.cli.parameters import json_flag
from streamfactory.spark.pipelines.schemas import pipeline_file_schema
from streamfactory.wiring.config.json_schemas import installed_types, stream_file_schema
from streamfactory.wiring.core.places import is_file
from streamfactory.wiring.plugins.manager import default_manager

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.cli.printing import Printer


@click.command("init")
@click.argument(
    "folder", type=click.Path(path_type=Path, file_okay=False), default=Path()
)
@click.option(
    "--kafka",
    is_flag=True,
    help="Add a stream in Kafka and a broker for this machine, with or without a "
    "container, and print how it can be started here.",
)
@click.option(
    "--editor",
    is_flag=True,
    help="Write only the JSON schemas for editors, again: after an upgrade, or for a "
    "stream type that was installed.",
)
@json_flag
@click.pass_obj
def init_command(printer: Printer, *, folder: Path, kafka: bool, editor: bool) -> None:
    """Create a project to start from in FOLDER, or here.

    It has streams in files, a pipeline and its test, rows to begin with, JSON schemas
    for editors (Taplo, Even Better TOML), and a README.
    Files that are there already are never overwritten: nothing is written if one is.
    """
    schemas = _schemas()
    if editor:
        for name, text in schemas.items():
            _write(folder / name, text, "w")
        document = {"folder": str(folder), "files": [*schemas]}
        printer.show(document, [f"{folder}:", *(f"  {name}" for name in schemas)])
        return
    texts = _texts("starter") | (_texts("starter_kafka") if kafka else {}) | schemas
    there = [name for name in texts if is_file(folder / name)]
    if there:
        msg = f"{', '.join(there)}: there already, and nothing is overwritten."
        raise click.BadParameter(msg, param_hint="'FOLDER'")
    for name, text in texts.items():
        _write(folder / name, text)
    document = {"folder": str(folder), "files": list(texts)}
    lines = [*_lines(folder, list(texts)), *(_broker_lines() if kafka else ())]
    page = "KAFKA.md" if kafka else "README.md"
    printer.show(document, [*lines, f"{page} leads from there."])


def _texts(starter: str) -> dict[str, str]:
    """The files of a starter, by their path in the project."""
    with as_file(files("streamfactory.cli") / starter) as root:
        return {
            path.relative_to(root).as_posix(): path.read_text(encoding="utf-8")
            for path in sorted(root.rglob("*"))
            if path.is_file()
        }


def _schemas() -> dict[str, str]:
    """The JSON schemas of the files of a project, with the installed plug-ins."""
    types = installed_types(default_manager())
    found = {
        "stream": stream_file_schema(types),
        "pipeline": pipeline_file_schema(types),
    }
    return {
        f"configs/schemas/{name}.json": json.dumps(schema, ensure_ascii=False) + "\n"
        for name, schema in found.items()
    }


def _write(path: Path, text: str, mode: str = "x") -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open(mode, encoding="utf-8") as file:
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


def _broker_lines() -> Iterator[str]:
    """How a broker can be started on this machine, and what each way lacks."""
    yield ""
    yield "A Kafka broker on 127.0.0.1:9092, for orders_kafka:"
    ways = {
        "docker compose up -d": ["docker"],
        "podman compose up -d": ["podman"],
        "sh broker/start.sh": ["java", "mvn"],
    }
    for command, programs in ways.items():
        missing = [name for name in programs if shutil.which(name) is None]
        remark = f"    (not here: {', '.join(missing)} not found)" if missing else ""
        yield f"  {command}{remark}"
