"""``publish``: files and standard input into a stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from streamfactory.cli.draining import Progress, draining, rate
from streamfactory.cli.parameters import (
    class_paths_flag,
    json_flag,
    one_definition,
    set_option,
)
from streamfactory.cli.results import Result, count
from streamfactory.cli.status import Status
from streamfactory.spi import StreamError
from streamfactory.spi.ddl import parse_ddl, to_ddl
from streamfactory.transfer.inputs import FORMATS
from streamfactory.transfer.publishing import Published, Publisher, open_publisher

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from streamfactory.cli.printing import Printer
    from streamfactory.spi import Verdict


@dataclass(frozen=True, slots=True)
class Publication(Result):
    """The answer of ``publish``."""

    stream: str
    writer: str | None
    done: Published
    seconds: float
    rows_per_second: int
    created: bool
    """Whether the topic was made."""
    schema: str | None
    guarantee: Verdict

    def lines(self) -> Iterator[str]:
        """The answer as text."""
        done = self.done
        told = f"{count(done.rows, 'row')} in {count(done.epochs, 'epoch')}"
        speed = f"{self.seconds:.2f} s, {self.rows_per_second} rows/s"
        yield f"{self.stream}: {told}, {speed}"
        if self.writer is not None:
            yield f"writer: {self.writer}"
        reasons = self.guarantee.reasons
        yield f"guarantee: {'; '.join([str(self.guarantee.guarantee), *reasons])}"
        if not done.complete:
            yield f"stopped before the end: {_again(self.writer)}"


def schema_type(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> pa.Schema | None:
    """Read a schema that stands on the command line."""
    try:
        return None if text is None else parse_ddl(text)
    except ValueError as error:
        msg = f"{text!r} {error}."
        raise click.BadParameter(msg, context, parameter) from error


def schema_text(schema: pa.Schema) -> str:
    """A schema as DDL, or as Arrow says it where DDL has no word for a type."""
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
    help="What the inputs are; else what their names end in.",
)
@click.option(
    "--schema",
    metavar="DDL",
    callback=schema_type,
    help="Columns and types, such as 'id bigint, name string'.",
)
@click.option("--delimiter", metavar="CHARACTER", help="Between the values of CSV.")
@click.option("--no-header", is_flag=True, help="CSV without names: --schema has them.")
@click.option(
    "--writer",
    metavar="ID",
    help="Who writes: run again, it goes on where it stood.",
)
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    help="Partitions of a topic that is created.",
)
@click.option("--no-create", is_flag=True, help="Fail where the topic is not there.")
@set_option
@class_paths_flag
@json_flag
@click.pass_obj
def publish_command(
    printer: Printer,
    /,
    *,
    target: str,
    overrides: dict[str, str],
    delimiter: str | None,
    no_header: bool,
    no_create: bool,
    **given: Any,
) -> Status:
    """Publish CSV, JSON lines, Parquet or Arrow files into a stream.

    INPUT is a file, or - for standard input. Rows become visible in epochs, whole
    ones, which the options realtime.segment.flush.threshold.* cut. With --writer the
    command can be killed and run again without a lost or doubled row. SIGINT and
    SIGTERM finish the epoch; a second one stops at once.
    """
    if delimiter is not None and (len(delimiter) != 1 or not delimiter.isascii()):
        msg = "wanted one character of ASCII."
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
                stop, begin=lambda: _begin(printer, publisher), tell=progress.tell
            )
        except StreamError:
            progress.wipe()
            _tell_rest(printer, publisher)
            raise
        progress.wipe()
        _tell_skipped(printer, publisher, done)
        printer.show(_answer(publisher, done, progress.seconds))
    return Status.FINE if done.complete else Status.INTERRUPTED


def _begin(printer: Printer, publisher: Publisher) -> None:
    assert publisher.schema is not None
    if publisher.created:
        printer.note("note", f"the topic {publisher.config.topic!r} was created")
    printer.note("note", f"schema: {schema_text(publisher.schema)}")


def _tell_rest(printer: Printer, publisher: Publisher) -> None:
    """After a failure: how far it came, which the error does not say."""
    if publisher.rows:
        told = f"{count(publisher.rows, 'row')} in {count(publisher.epochs, 'epoch')}"
        again = _again(publisher.writer_id)
        printer.note("note", f"{told} were committed before; {again}")


def _tell_skipped(printer: Printer, publisher: Publisher, done: Published) -> None:
    if done.skipped:
        amount = f"{done.skipped} {publisher.unit}"
        by = f"by writer {publisher.writer_id!r}"
        printer.note("note", f"{amount} of the inputs were published before {by}")


def _again(writer: str | None) -> str:
    if writer is None:
        return "without --writer, another run publishes them once more"
    return "the same command goes on behind them"


def _answer(publisher: Publisher, done: Published, seconds: float) -> Publication:
    schema = publisher.schema
    return Publication(
        stream=publisher.config.name,
        writer=publisher.writer_id,
        done=done,
        seconds=round(seconds, 3),
        rows_per_second=rate(done.rows, seconds),
        created=publisher.created,
        schema=None if schema is None else schema_text(schema),
        guarantee=publisher.guarantee,
    )
