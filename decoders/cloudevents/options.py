"""Options of ``cloudevents``."""

from __future__ import annotations

from typing import Final

from streamfactory.decoders.columns.options import shared_options, text_problem
from streamfactory.spi import Option, choice
from streamfactory.spi.arrowjson import parse_schema


def _decodable(text: str) -> str | None:
    return text_problem(parse_schema(text), nested=True)


OPTIONS: Final = (
    *shared_options(
        _decodable,
        "Columns of the events' data, as Spark DDL or Arrow JSON; without it, or with "
        "the only one `data binary`, data is returned as it is. A column ce_NAME has "
        "the attribute, or extension, NAME.",
    ),
    Option(
        "mode",
        "How events are written: attributes in headers (binary), or in an envelope of "
        "JSON with the data (structured). Both are read.",
        choice("binary", "structured"),
        default="binary",
        applies=frozenset({"write"}),
    ),
)
