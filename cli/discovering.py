"""``discover``: proposes the definition of a stream for what is at a place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from streamfactory.cli.parameters import json_flag, one_definition
from streamfactory.transfer.discovering import Place, discover
from streamfactory.wiring.config.written import toml_of
from streamfactory.wiring.core.shown import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.cli.printing import Printer
    from streamfactory.transfer.discovering import Proposal


@click.command("discover")
@click.argument("place", required=False, default="")
@click.option("--name", required=True, help="Name of the stream.")
@click.option(
    "--type", "kind", metavar="TYPE", default="", help="Stream type, if it is known."
)
@click.option("--topic", default="", help="Topic, if the place has several.")
@click.option(
    "--like",
    metavar="NAME-OR-FILE",
    help="A stream of the same server, in place of PLACE: its connection is used.",
)
@json_flag
@click.pass_obj
def discover_command(
    printer: Printer, *, place: str, name: str, kind: str, topic: str, like: str | None
) -> None:
    """Propose the definition of a stream for what is at PLACE, and print it.

    PLACE is a folder or a file of Arrow, Parquet, CSV or JSON, a folder of topics, a
    table of Delta, Iceberg or Hudi, HOST:PORT of a broker of Kafka, or grpc://HOST:PORT
    of a Flight server; with --type, what the type requires. Schemas of JSON messages
    are inferred. Nothing is written or consumed, and it takes 30 seconds at most.
    """
    if bool(place) == bool(like):
        msg = "Give either PLACE or --like."
        raise click.UsageError(msg)
    similar = None if like is None else one_definition(like, {})
    found = discover(Place(name, place, kind.lower(), topic, like=similar))
    document = {
        "name": name,
        "definition": None if found.topics else toml_of(found.definition),
        "topics": [*found.topics],
        "notes": [*found.notes],
    }
    printer.show(document, _lines(found))


def _lines(found: Proposal) -> Iterator[str]:
    # As comments of TOML: the output can be the file.
    for note in found.notes:
        yield f"# {printable(note)}"
    if not found.topics:
        yield toml_of(found.definition).rstrip("\n")
        return
    yield "# the place has several topics: choose one with --topic"
    for topic in found.topics:
        yield f"# {printable(topic)}"
