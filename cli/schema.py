"""``schema``: the columns of a stream."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import click

from streamfactory.cli.bounded import bounded
from streamfactory.cli.parameters import (
    class_paths_flag,
    json_flag,
    one_definition,
    set_option,
)
from streamfactory.cli.results import Result, count, table
from streamfactory.spi.ddl import to_ddl
from streamfactory.wiring.config.loading import load
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.reading.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from streamfactory.cli.printing import Printer
    from streamfactory.wiring.config.configure import Configured


@dataclass(frozen=True, slots=True)
class Column:
    """One column of ``schema``."""

    name: str
    type: str
    """Arrow's name of it."""
    nullable: bool


@dataclass(frozen=True, slots=True)
class StreamSchema(Result):
    """The answer of ``schema``."""

    stream: str
    ddl: str | None
    """Spark's; None where a type has no name there."""
    ddl_problem: str | None
    columns: list[Column]

    def lines(self) -> Iterator[str]:
        """The answer as text."""
        yield f"{self.stream}, as Spark DDL:"
        yield f"  {self.ddl}" if self.ddl else f"  none: {self.ddl_problem}"
        yield ""
        yield "as Arrow:"
        yield from table(
            [
                (column.name, column.type, "" if column.nullable else "not null")
                for column in self.columns
            ],
            indent="  ",
        )


@dataclass(frozen=True, slots=True)
class InferredSchema(StreamSchema):
    """The answer of ``schema --infer``."""

    inferred_from: int
    """Messages that were looked at, at the most."""

    def lines(self) -> Iterator[str]:
        """The answer as text."""
        yield from StreamSchema.lines(self)
        yield ""
        yield f"inferred from {count(self.inferred_from, 'message')} at the most."
        if self.ddl:
            yield "Look at it, mend it, and declare it:"
            yield f"  schema = {json.dumps(self.ddl)}"


@click.command("schema")
@click.argument("target", metavar="NAME-OR-FILE")
@click.option(
    "--infer", is_flag=True, help="Make a schema of the first messages, to be declared."
)
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="With --infer: look at so many messages.",
)
@set_option
@class_paths_flag
@json_flag
@click.pass_obj
def schema_command(
    printer: Printer,
    *,
    target: str,
    infer: bool,
    sample: int,
    overrides: dict[str, str],
    allow_class_paths: bool,
) -> None:
    """Show the columns of a stream, as Spark DDL and as Arrow.

    They are what open() answers: decoded, with metadata columns where the configuration
    wants them. Connects, for connection.timeout.millis at the most, and reads nothing.
    With --infer its decoder makes a schema of some messages instead, which nothing
    uses before it is declared.
    """
    definition = one_definition(target, overrides)
    configured = load(definition, "read", allow_class_paths=allow_class_paths)
    config = configured.config
    printer.mask = config.mask
    seconds = config["connection.timeout.millis"] / 1000
    if infer:
        from streamfactory.wiring.reading.raw_messages import infer_schema

        seconds += config["fetch.timeout.millis"] / 1000
        found = bounded(
            "schema",
            seconds,
            lambda: infer_schema(
                definition,
                default_manager(),
                sample=sample,
                allow_class_paths=allow_class_paths,
            ),
        )
        told = _answer(config.name, found)
        facts = {one.name: getattr(told, one.name) for one in fields(told)}
        printer.show(InferredSchema(**facts, inferred_from=sample))
        return
    schema = bounded("schema", seconds, lambda: _ask(configured))
    printer.show(_answer(config.name, schema))


def _ask(configured: Configured) -> pa.Schema:
    source = Source(configured, client_id="streamfactory-schema")
    try:
        return source.schema
    finally:
        source.close()


def _answer(name: str, schema: pa.Schema) -> StreamSchema:
    ddl = problem = None
    try:
        ddl = to_ddl(schema)
    except ValueError as error:
        problem = str(error)
    columns = [Column(field.name, str(field.type), field.nullable) for field in schema]
    return StreamSchema(name, ddl, problem, columns)
