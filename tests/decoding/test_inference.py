"""A schema from where it lives: declared, or made of a sample when asked."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.specimens import Words

from streamfactory.cli.printing import JsonPrinter, TextPrinter
from streamfactory.cli.schema import schema_command
from streamfactory.spi import (
    SCHEMA,
    ConfigError,
    DecodeContext,
    Decoded,
    Decoder,
    Option,
    SchemaUnknown,
    Unsupported,
    hookimpl,
)
from streamfactory.spi.ddl import parse_ddl
from streamfactory.spi.hooks import DECODERS
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.reading.raw_messages import infer_schema
from streamfactory.wiring.streams.stream import open_stream

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.decoding.conftest import Streams


class Fields(Words):
    """``a=1,b=2``: columns are those of the schema; all that a sample has are."""

    def schema(self) -> pa.Schema:
        if "schema" not in self.options:
            msg = "it is not declared"
            raise SchemaUnknown(msg)
        return parse_ddl(self.options["schema"])

    def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
        rows = [_pairs(value) for value in values.to_pylist()]
        return Decoded(pa.RecordBatch.from_pylist(rows, schema=self.schema()))

    @classmethod
    def infer(cls, values: pa.Array, options: Mapping[str, Any]) -> pa.Schema:
        names = {name for value in values.to_pylist() for name in _pairs(value)}
        return pa.schema({name: pa.string() for name in sorted(names)})


def _pairs(value: bytes) -> dict[str, str]:
    found = (pair.partition("=")[::2] for pair in value.decode().split(","))
    return dict(found)


class FieldsPlugin:
    @hookimpl
    def streamfactory_decoder(self) -> Decoder:
        schema = Option("schema", "Columns.", SCHEMA)
        return Decoder(
            name="fields", doc="Fields.", spi_level=1, decoder=Fields, options=(schema,)
        )


FIELDS: dict[str, str] = {"stream__memory__decoder__class__name": "fields"}


@pytest.fixture
def fields(streams: Streams) -> Streams:
    """Four messages of two partitions, each with other fields."""
    streams.plugins.register(FieldsPlugin())
    streams.messages("from", [b"a=1", b"a=2,b=3"], [b"c=4", b"d=5"])
    streams.define("from", **FIELDS)
    return streams


def inferred(streams: Streams, sample: int = 100, **options: str) -> pa.Schema:
    properties = streams.define("from", **{**FIELDS, **options})
    return infer_schema(
        from_mapping(properties),
        streams.plugins,
        sample=sample,
        allow_class_paths=False,
    )


def test_sample_of_all_partitions_makes_a_schema(fields: Streams) -> None:
    assert inferred(fields).names == ["a", "b", "c", "d"]


def test_sample_has_no_more_messages_than_were_asked_for(fields: Streams) -> None:
    assert len(inferred(fields, sample=1).names) == 1


def test_packed_payloads_are_opened_for_a_sample(streams: Streams) -> None:
    streams.plugins.register(FieldsPlugin())
    streams.messages("from", [gzip.compress(b"z=1"), b"torn", None])
    assert inferred(streams, payload__compression="gzip").names == ["z"]


def test_stream_without_a_message_shows_no_schema(streams: Streams) -> None:
    streams.plugins.register(FieldsPlugin())
    streams.messages("from", [None])
    with pytest.raises(SchemaUnknown) as caught:
        inferred(streams)
    assert caught.value.what == "a schema cannot be inferred: the stream has no message"


def test_decoder_that_cannot_infer_is_reported(streams: Streams) -> None:
    streams.messages("from", [b"a"])
    with pytest.raises(Unsupported) as caught:
        inferred(streams, stream__memory__decoder__class__name="words")
    assert caught.value.what == "this decoder cannot infer a schema"


def test_stream_that_decodes_nothing_has_nothing_to_infer(streams: Streams) -> None:
    streams.messages("from", [b"a"])
    with pytest.raises(ConfigError) as caught:
        inferred(streams, stream__memory__decoder__class__name="raw")
    assert caught.value.what.startswith("a schema cannot be inferred")


def test_nothing_is_inferred_while_a_stream_is_read(fields: Streams) -> None:
    with pytest.raises(SchemaUnknown) as caught:
        open_stream("from", plugins=fields.plugins)
    assert caught.value.what == "it is not declared"


def test_declared_schema_of_a_stream_is_that_of_its_decoder(fields: Streams) -> None:
    fields.define("from", **FIELDS, schema="b string, a string")
    with open_stream("from", plugins=fields.plugins) as stream:
        assert stream.schema.names == ["b", "a"]
        batch = next(iter(stream))
    assert batch.rows.to_pydict() == {"b": [None, "3"], "a": ["1", "2"]}


@pytest.fixture
def installed(fields: Streams) -> Iterator[Streams]:
    default_manager().register(FieldsPlugin())
    yield fields
    default_manager().unregister(DECODERS, "fields")


def test_command_prints_what_can_be_pasted(
    installed: Streams, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["from", "--infer", "--sample", "50"]
    schema_command.main(arguments, standalone_mode=False, obj=TextPrinter())
    shown = capsys.readouterr().out
    line = next(one for one in shown.splitlines() if one.startswith("  schema = "))
    ddl = json.loads(line.removeprefix("  schema = "))
    assert parse_ddl(ddl).names == ["a", "b", "c", "d"]
    installed.define("from", **FIELDS, schema=ddl)
    with open_stream("from", plugins=installed.plugins) as stream:
        assert stream.schema.names == ["a", "b", "c", "d"]


def test_command_reports_as_json_how_much_was_looked_at(
    installed: Streams, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["from", "--infer", "--json"]
    schema_command.main(arguments, standalone_mode=False, obj=JsonPrinter())
    found = json.loads(capsys.readouterr().out)
    assert found["inferred_from"] == 1000
    assert found["ddl"] == "a string, b string, c string, d string"
