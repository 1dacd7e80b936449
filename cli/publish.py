"""``publish``: files and standard input into a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from streamfactory.cli.draining import Progress, draining, rate
from streamfactory.cli.parameters import (
    Overrides,
    class_paths_flag,
    json_flag,
    log_format_option,
    one_definition,
    set_option,
)
from streamfactory.cli.results import count
from streamfactory.cli.status import Status
from streamfactory.spi import StreamError
from streamfactory.spi.ddl import parse_ddl, to_ddl
from streamfactory.transfer.inputs import FORMATS
from streamfactory.transfer.publishing import Published, Publisher, open_publisher
from streamfactory.wiring.core.plain import plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from streamfactory.cli.printing import Printer


def schema_type(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> pa.Schema | None:
    """A click callback: a schema as DDL."""
    try:
        return None if text is None else parse_ddl(text)
    except ValueError as error:
        msg = f"{text!r} {error}."
        raise click.BadParameter(msg, context, parameter) from error


def schema_text(schema: pa.Schema) -> str:
    """A schema as DDL, or as Arrow's types if DDL lacks one of them."""
    try:
        return to_ddl(schema)
    except ValueError:
        return ", ".join(f"{field.name} {field.type}" for field in schema)


@click.command("publish")
@click.argument("target", metavar="NAME-OR-FILE")
@click.argument("inputs", metavar="INPUT...", nargs=-1, required=True)
@click.option(
    "--format",
    type=click.Choice(FORMATS),
    help="Format of the inputs; by default what their names end in.",
)
@click.option(
    "--schema",
    metavar="DDL",
    callback=schema_type,
    help="Columns and types, such as 'id bigint, name string'.",
)
@click.option(
    "--delimiter",
    metavar="CHARACTER",
    help="Between the values of CSV; a comma by default, a tab for .tsv.",
)
@click.option(
    "--no-header", is_flag=True, help="CSV without column names: --schema names them."
)
@click.option(
    "--writer",
    metavar="ID",
    help="Writer id: another run with it continues after the committed rows.",
)
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    help="Number of partitions, if the topic is created.",
)
@click.option("--no-create", is_flag=True, help="Fail if the topic does not exist.")
@set_option
@class_paths_flag
@log_format_option
@json_flag
@click.pass_obj
def publish_command(
    printer: Printer,
    /,
    *,
    target: str,
    overrides: Overrides,
    delimiter: str | None,
    no_header: bool,
    no_create: bool,
    **given: Any,
) -> Status:
    """Publish CSV, JSON lines, Parquet or Arrow files into a stream.

    INPUT is a file, or - for standard input. Rows are committed in epochs, which the
    options realtime.segment.flush.threshold.* limit. With --writer the command can be
    killed and run again without losing or duplicating rows. SIGINT and SIGTERM finish
    the epoch if that takes less than a second; a second one stops at once.
    """
    if delimiter is not None and (len(delimiter) != 1 or not delimiter.isascii()):
        msg = "wanted one ASCII character."
        raise click.BadParameter(msg, param_hint="--delimiter")
    publisher = open_publisher(
        one_definition(target, overrides),
        given.pop("inputs"),
        delimiter=delimiter,
        header=not no_header,
        create=not no_create,
        writer_id=given.pop("writer"),
        **given,
    )
    with publisher, draining() as stop:
        printer.mask = publisher.config.mask
        size = publisher.size
        progress = Progress(
            printer, lambda: publisher.progress / size if size else None
        )
        try:
            done = publisher.run(
                stop,
                begin=lambda: _begin(printer, publisher),
                on_progress=progress.report,
            )
        except StreamError:
            progress.wipe()
            _note_committed(printer, publisher)
            raise
        progress.wipe()
        _note_skipped(printer, publisher, done)
        document = _document(publisher, done, progress.seconds)
        printer.show(document, _lines(document))
    if not done.confirmed:
        return Status.FAILED
    return Status.FINE if done.complete else Status.INTERRUPTED


def _begin(printer: Printer, publisher: Publisher) -> None:
    assert publisher.schema is not None
    if publisher.created:
        printer.note("note", f"the topic {publisher.config.topic!r} was created")
    guessed = ""
    if publisher.sampled is not None:
        names = ", ".join(publisher.schema.names)
        guessed = f" (guessed from {count(publisher.sampled, 'row')}: {names})"
    printer.note("note", f"schema: {schema_text(publisher.schema)}{guessed}")


def _note_committed(printer: Printer, publisher: Publisher) -> None:
    """After a failure: what was committed, which the error does not contain."""
    if publisher.rows:
        rows = f"{count(publisher.rows, 'row')} in {count(publisher.epochs, 'epoch')}"
        again = _again(publisher.writer_id)
        printer.note("note", f"{rows} were committed before; {again}")


def _note_skipped(printer: Printer, publisher: Publisher, done: Published) -> None:
    if done.skipped:
        amount = f"{done.skipped} {publisher.unit}"
        by = f"by writer {publisher.writer_id!r}"
        printer.note("note", f"{amount} of the inputs were published before {by}")


def _again(writer: str | None) -> str:
    if writer is None:
        return "without --writer, another run publishes them again"
    return "the same command continues after them"


def _document(publisher: Publisher, done: Published, seconds: float) -> dict[str, Any]:
    schema = publisher.schema
    return {
        "stream": publisher.config.name,
        "writer": publisher.writer_id,
        **plain(done),
        "seconds": round(seconds, 3),
        "rows_per_second": rate(done.rows, seconds),
        "created": publisher.created,
        "schema": None if schema is None else schema_text(schema),
        **plain(publisher.guarantee),
    }


def _lines(document: dict[str, Any]) -> Iterator[str]:
    rows = count(document["rows"], "row")
    rows += f" in {count(document['epochs'], 'epoch')}"
    speed = f"{document['seconds']:.2f} s, {document['rows_per_second']} rows/s"
    yield f"{document['stream']}: {rows}, {speed}"
    if document["writer"] is not None:
        yield f"writer: {document['writer']}"
    guarantee = "; ".join([document["guarantee"], *document["reasons"]])
    yield f"guarantee: {guarantee}"
    if not document["complete"]:
        yield f"stopped before the end: {_again(document['writer'])}"
