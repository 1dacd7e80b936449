"""``topics create`` and ``topics grow``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from streamfactory.cli.publish import schema_type
from streamfactory.cli.recording import recorded
from streamfactory.cli.results import count
from streamfactory.cli.topics.arguments import opened, place_options, target_argument
from streamfactory.cli.topics.columns import (
    schema_document,
    schema_lines,
    schema_of_file,
)
from streamfactory.spi import MisuseError, SchemaUnknown, TopicNotFound
from streamfactory.wiring.writing.routing import ROUTING

if TYPE_CHECKING:
    import pyarrow as pa

    from streamfactory.cli.printing import Printer
    from streamfactory.wiring.topics.admin import Admin


@click.command("create")
@target_argument
@click.option(
    "--schema",
    metavar="DDL",
    callback=schema_type,
    help="Columns and types, such as 'id bigint, name string'.",
)
@click.option(
    "--schema-from",
    "file",
    metavar="FILE",
    help="Columns and types of an Arrow or Parquet file.",
)
@click.option(
    "--messages", is_flag=True, help="No columns: a topic of undecoded messages."
)
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    help="Number of partitions; by default that of the configuration.",
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

    Give the columns by --schema or --schema-from, or none by --messages. By default
    they are those of the option schema, or those that the source has already, such as
    a table whose changes become a topic. A type whose topics hold undecoded messages
    only, such as kafka, needs none of these.
    """
    given = (schema is not None) + (file is not None) + messages
    if given > 1:
        msg = "Give one of --schema, --schema-from and --messages."
        raise click.UsageError(msg)
    if file is not None:
        schema = schema_of_file(file)
    if schema is not None:
        _refuse_special(schema)
    with opened(printer, target, **where) as admin:
        if not given and not admin.holds_messages:
            schema = admin.declared or _found(admin)
        with recorded("edit", "topic", admin.topic, "created"):
            admin.create(schema, partitions)
        infos = admin.partitions()
        columns = schema_document(admin.schema())
        created = f"created with {count(len(infos), 'partition')}"
        printer.show(
            {
                "topic": admin.topic,
                "partitions": len(infos),
                "incarnation": infos[0].incarnation,
                "schema": columns,
            },
            [f"{admin.topic}: {created}", *schema_lines(columns)],
        )


def _found(admin: Admin) -> pa.Schema:
    try:
        return admin.schema()
    except (TopicNotFound, SchemaUnknown):
        msg = "Give one of --schema, --schema-from and --messages."
        raise click.UsageError(msg) from None


def _refuse_special(schema: pa.Schema) -> None:
    for name in schema.names:
        if name in ROUTING:
            msg = f"column {name!r} of rows to write says where they go"
            raise MisuseError(msg, remedy="remove it from the schema")
    if not schema.names:
        msg = "a topic without columns has no rows"
        raise MisuseError(msg, remedy="name at least one column")


@click.command("grow")
@target_argument
@click.argument("partitions", metavar="PARTITIONS", type=click.IntRange(min=1))
@place_options
@click.pass_obj
def grow_command(
    printer: Printer, /, *, target: str, partitions: int, **where: Any
) -> None:
    """Increase the number of partitions to PARTITIONS.

    Existing rows are not moved; later rows of a key may go to another partition. The
    number of partitions cannot be reduced.
    """
    with opened(printer, target, **where) as admin:
        before = len(admin.partitions())
        with recorded(
            "edit",
            "topic",
            admin.topic,
            "grown",
            before=str(before),
            after=str(partitions),
        ):
            admin.grow(partitions)
        after = len(admin.partitions())
        now = count(after, "partition")
        line = f"{now}, {before} before" if after != before else f"already has {now}"
        printer.show(
            {
                "topic": admin.topic,
                "partitions_before": before,
                "partitions": after,
            },
            [f"{admin.topic}: {line}"],
        )
