"""``describe``: what a stream type or a decoder is, and its options."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from streamfactory.cli.descriptions import (
    backend_document,
    backend_lines,
    decoder_document,
    decoder_lines,
)
from streamfactory.cli.parameters import json_flag
from streamfactory.wiring.config.json_schemas import json_schema
from streamfactory.wiring.plugins.manager import default_manager

if TYPE_CHECKING:
    from streamfactory.cli.printing import Printer


@click.command("describe")
@click.argument("type_name", metavar="[TYPE]", required=False)
@click.option("--decoder", metavar="NAME", help="Describe this decoder instead.")
@click.option(
    "--schema", is_flag=True, help="Print a JSON Schema of the properties of a stream."
)
@click.option(
    "--all", "everything", is_flag=True, help="Include the options of every type."
)
@json_flag
@click.pass_obj
def describe_command(
    printer: Printer,
    *,
    type_name: str | None,
    decoder: str | None,
    schema: bool,
    everything: bool,
) -> None:
    """Describe a stream TYPE, or a decoder.

    Shows its abilities, its options, what it claims, and the strongest delivery
    guarantee that follows. Connects to nothing.
    """
    if (type_name is None) == (decoder is None):
        msg = "Give a stream TYPE, or --decoder NAME."
        raise click.UsageError(msg)
    manager = default_manager()
    if type_name is None:
        if schema or everything:
            msg = "--schema and --all are for stream types."
            raise click.UsageError(msg)
        document = decoder_document(manager, str(decoder))
        printer.show(document, decoder_lines(document))
        return
    backend = manager.backend(type_name.lower())
    if schema:
        found = json_schema(backend)
        printer.show(found, [json.dumps(found, indent=2, ensure_ascii=False)])
        return
    document = backend_document(manager, backend, everything=everything)
    printer.show(document, backend_lines(document))
