"""``schema``: the columns of a stream."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from streamfactory.cli.parameters import (
    Overrides,
    class_paths_flag,
    json_flag,
    one_definition,
    set_option,
)
from streamfactory.cli.results import count
from streamfactory.cli.topics.columns import field_documents, field_lines
from streamfactory.spi.ddl import to_ddl
from streamfactory.wiring.config.loading import load
from streamfactory.wiring.core.bounded import bounded
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.reading.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from streamfactory.cli.printing import Printer
    from streamfactory.wiring.config.settled import Configured


@click.command("schema")
@click.argument("target", metavar="NAME-OR-FILE")
@click.option("--infer", is_flag=True, help="Infer a schema from the first messages.")
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="With --infer: number of messages.",
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
    overrides: Overrides,
    allow_class_paths: bool,
) -> None:
    """Show the columns of a stream, as Spark DDL and as Arrow.

    These are the columns that open() returns: decoded, with the metadata columns of the
    configuration. Connects, within connection.timeout.millis, and reads no rows. With
    --infer, the decoder infers a schema from some messages; to use it, declare it in
    the configuration.
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
        document = _document(config.name, found)
        document["inferred_from"] = sample
        printer.show(document, _inferred_lines(document))
        return
    schema = bounded("schema", seconds, lambda: _ask(configured))
    document = _document(config.name, schema)
    printer.show(document, _lines(document))


def _ask(configured: Configured) -> pa.Schema:
    source = Source(configured, client_id="streamfactory-schema")
    try:
        return source.schema
    finally:
        source.close()


def _document(name: str, schema: pa.Schema) -> dict[str, Any]:
    ddl = problem = None
    try:
        ddl = to_ddl(schema)
    except ValueError as error:
        problem = str(error)
    return {
        "stream": name,
        "ddl": ddl,
        "ddl_problem": problem,
        "columns": field_documents(schema),
    }


def _lines(document: dict[str, Any]) -> Iterator[str]:
    yield f"{document['stream']}, as Spark DDL:"
    problem = f"none: {document['ddl_problem']}"
    yield f"  {document['ddl'] or problem}"
    yield ""
    yield "as Arrow:"
    yield from field_lines(document["columns"])


def _inferred_lines(document: dict[str, Any]) -> Iterator[str]:
    yield from _lines(document)
    yield ""
    yield f"inferred from {count(document['inferred_from'], 'message')} at the most."
    if document["ddl"]:
        yield "Check it, correct it, and declare it:"
        yield f"  schema = {json.dumps(document['ddl'])}"
