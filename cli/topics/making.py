"""``topics create`` and ``topics grow``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from streamfactory.cli.results import Result, count
from streamfactory.cli.topics.arguments import opened, place_options, target_argument
from streamfactory.cli.topics.columns import Columns, columns_of, schema_of_file
from streamfactory.spi import MisuseError
from streamfactory.spi.ddl import parse_ddl
from streamfactory.wiring.writing.routing import SPECIAL

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from streamfactory.cli.printing import Printer


@dataclass(frozen=True, slots=True)
class Created(Result):
    """The answer of ``topics create``."""

    topic: str
    partitions: int
    incarnation: str | None
    schema: Columns

    def lines(self) -> Iterator[str]:
        """The answer as text."""
        yield f"{self.topic}: created with {count(self.partitions, 'partition')}"
        yield from self.schema.lines()


def _ddl(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> pa.Schema | None:
    try:
        return None if text is None else parse_ddl(text)
    except ValueError as error:
        msg = f"{text!r} {error}."
        raise click.BadParameter(msg, context, parameter) from error


@click.command("create")
@target_argument
@click.option(
    "--schema",
    metavar="DDL",
    callback=_ddl,
    help="Columns and types, such as 'id bigint, name string'.",
)
@click.option(
    "--schema-from",
    "file",
    metavar="FILE",
    help="Those of an Arrow or Parquet file.",
)
@click.option("--messages", is_flag=True, help="None: it is for undecoded messages.")
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    help="How many; else what the configuration says.",
)
@place_options
@click.pass_obj
def create_command(
    printer: Printer,
    /,
    *,
    target: str,
    schema: pa.Schema | None,
    file: str | None,
    messages: bool,
    partitions: int | None,
    **where: Any,
) -> None:
    """Create a topic, and show its columns.

    They are told by one of --schema, --schema-from and --messages.
    """
    if (schema is not None) + (file is not None) + messages != 1:
        msg = "Give one of --schema, --schema-from and --messages."
        raise click.UsageError(msg)
    if file is not None:
        schema = schema_of_file(file)
    if schema is not None:
        _refuse_special(schema)
    with opened(printer, target, **where) as admin:
        admin.create(schema, partitions)
        infos = admin.partitions()
        printer.show(
            Created(
                admin.topic,
                len(infos),
                infos[0].incarnation,
                columns_of(admin.schema()),
            )
        )


def _refuse_special(schema: pa.Schema) -> None:
    for name in schema.names:
        if name in (*SPECIAL, "_offset"):
            msg = f"column {name!r} is no column of the rows: it travels with them"
            raise MisuseError(msg, remedy="leave it out")
    if not schema.names:
        msg = "a topic without columns has no rows"
        raise MisuseError(msg, remedy="name at least one column")


@dataclass(frozen=True, slots=True)
class Grown(Result):
    """The answer of ``topics grow``."""

    topic: str
    partitions_before: int
    partitions: int

    def lines(self) -> Iterator[str]:
        """The answer as text."""
        now = count(self.partitions, "partition")
        if self.partitions == self.partitions_before:
            yield f"{self.topic}: has {now} already"
        else:
            yield f"{self.topic}: {now}, {self.partitions_before} before"


@click.command("grow")
@target_argument
@click.argument("partitions", metavar="PARTITIONS", type=click.IntRange(min=1))
@place_options
@click.pass_obj
def grow_command(
    printer: Printer, /, *, target: str, partitions: int, **where: Any
) -> None:
    """Have so many PARTITIONS, never fewer than there are.

    Rows stay where they are. A key may go to another partition from then on.
    """
    with opened(printer, target, **where) as admin:
        before = len(admin.partitions())
        admin.grow(partitions)
        printer.show(Grown(admin.topic, before, len(admin.partitions())))
