"""Options of ``debezium``."""

from __future__ import annotations

from typing import Final

from streamfactory.decoders.columns.options import UNITS, text_problem
from streamfactory.decoders.registry import REGISTRY_OPTIONS
from streamfactory.spi import LIST, SCHEMA, Option, choice
from streamfactory.spi.arrowjson import parse_schema


def _decodable(text: str) -> str | None:
    # Imported here: only a schema needs Arrow.
    from streamfactory.decoders.debezium.layout import Layout

    schema = parse_schema(text)
    return text_problem(schema, nested=True) or Layout.problem(schema)


OPTIONS: Final = (
    Option(
        "schema",
        "Columns of the table, as Spark DDL or Arrow JSON. The columns _change, "
        "_commit_time, _op, _ts and _source describe the change.",
        SCHEMA,
        validator=_decodable,
        example="id bigint not null, name string, price decimal(10,2)",
    ),
    Option(
        "format",
        "Converter that Debezium writes with: JSON, with or without schemas, or Avro "
        "with a Schema Registry.",
        choice("json", "avro"),
        default="json",
    ),
    Option(
        "truncate",
        "Treatment of the event of a truncated table: a bad message, no row, or a row "
        "of nulls whose _change is truncate.",
        choice("error", "skip", "row"),
        default="error",
    ),
    Option(
        "unavailable.values",
        "Treatment of a value that the database did not write to its log because it "
        "was unchanged: the message is bad, or the value null.",
        choice("error", "null"),
        default="error",
    ),
    Option(
        "unavailable.value.placeholder",
        "Text that the connector writes for such a value.",
        default="__debezium_unavailable_value",
    ),
    Option(
        "timestamp.unit",
        "Unit of timestamps given as numbers, for JSON without schemas under the "
        "modes adaptive and adaptive_time_microseconds.",
        choice(*UNITS),
    ),
    Option(
        "time.precision.mode",
        "The connector's option of this name, for JSON without schemas.",
        choice(
            "adaptive",
            "adaptive_time_microseconds",
            "connect",
            "isostring",
            "microseconds",
            "nanoseconds",
            "structured",
        ),
        default="adaptive",
    ),
    Option(
        "decimal.handling.mode",
        "The connector's option of this name, for JSON without schemas. `precise` "
        "numbers have the scale of the declared column.",
        choice("precise", "string", "double"),
        default="precise",
    ),
    Option(
        "variable.scale.columns",
        "Decimals whose scale is in each value (NUMERIC without scale in PostgreSQL, "
        "NUMBER in Oracle), for JSON without schemas under `precise`.",
        LIST,
        example="amount,rate",
    ),
    Option(
        "binary.handling.mode",
        "The connector's option of this name. Texts are decoded to bytes by it only.",
        choice("bytes", "base64", "base64-url-safe", "hex"),
        default="bytes",
    ),
    Option(
        "interval.handling.mode",
        "The connector's option of this name, for JSON without schemas.",
        choice("numeric", "string"),
        default="numeric",
    ),
    *REGISTRY_OPTIONS,
)
