"""Columns with dictionaries, for clients that read with ``DoGet`` alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from tests.flight.conftest import stream
from tests.fuzz.columns import columns

import streamfactory
from streamfactory.backends.flight.protocol.codec import decode
from streamfactory.backends.flight.protocol.messages import Delivery
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.wiring.serving.process import ServerProcess

ENCODED = {
    **{name: each for name, each in columns().items() if "dictionar" in name},
    "times": pa.array([1, 2, None, 1]).cast(pa.timestamp("us")).dictionary_encode(),
    "map": pa.array([[("a", "x")], None], pa.map_(pa.string(), pa.string())).cast(
        pa.map_(pa.string(), pa.dictionary(pa.int32(), pa.string()))
    ),
}


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with streamfactory.serve(memory=True) as found:
        yield found


@pytest.mark.parametrize("name", sorted(ENCODED))
def test_plain_client_gets_values_in_place_of_dictionaries(
    name: str, server: ServerProcess
) -> None:
    column = ENCODED[name]
    batch = pa.record_batch({name: column, "n": pa.array(range(len(column)))})
    topic = f"words-{sorted(ENCODED).index(name)}"
    with open_sink(stream(server, topic)) as sink:
        sink.put(batch, writer_id="w", epoch=0)
        sink.put(batch.slice(1), writer_id="w", epoch=1)  # other dictionaries
    with fl.connect(server.location) as client:
        path = fl.FlightDescriptor.for_path(topic)
        info = client.get_flight_info(path)
        found = client.do_get(info.endpoints[0].ticket).read_all()
        assert found.schema == info.schema == client.get_schema(path).schema
    assert "dictionary<" not in str(found.schema)
    assert found.to_pylist() == [*batch.to_pylist(), *batch.slice(1).to_pylist()]
    with streamfactory.open(stream(server, topic)) as opened:
        assert opened.to_reader().schema.field(name).type == column.type


def test_a_dictionary_that_stands_for_gigabytes_is_sent_in_parts(
    server: ServerProcess,
) -> None:
    codes = pa.array([0] * 60_000, pa.int8())
    words = pa.DictionaryArray.from_arrays(codes, pa.array(["x" * 40_000]))
    with open_sink(stream(server, "large")) as sink:
        sink.put(pa.record_batch({"word": words}), writer_id="w", epoch=0)
    with fl.connect(server.location) as client:
        info = client.get_flight_info(fl.FlightDescriptor.for_path("large"))
        reader = client.do_get(info.endpoints[0].ticket)
        at = 0
        for _ in range(5):
            chunk = reader.read_chunk()
            assert chunk.data.nbytes < 9 << 20
            assert decode(chunk.app_metadata, Delivery).start == at
            at += chunk.data.num_rows
        reader.cancel()
    assert at > 0
