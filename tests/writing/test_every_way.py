"""Every way of writing converts values by the same rules, or refuses them."""

from __future__ import annotations

import re
import uuid
from contextlib import closing
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import flight, parquet
from tests.proving.generated import cases
from tests.reading.schema_pairs import arrays, is_same, kinds, neighbours

import streamfactory
from streamfactory.conversion.conform import conform, empty_rows
from streamfactory.conversion.leaves import leaf_refusal
from streamfactory.spi import SchemaMismatch
from streamfactory.wiring.core.canonical import canonical_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NAN, DAY = float("nan"), datetime(2024, 5, 1, 5)  # noqa: DTZ001 - without zone

LOSSY: list[tuple[Any, pa.DataType, pa.DataType]] = [
    (-5, pa.int64(), pa.bool_()),
    (0.5, pa.float64(), pa.bool_()),
    (NAN, pa.float64(), pa.bool_()),
    (True, pa.bool_(), pa.int64()),
    (DAY, pa.timestamp("us"), pa.date32()),
    (DAY, pa.timestamp("us"), pa.date64()),
    (DAY, pa.timestamp("us"), pa.time64("us")),
    (time(5), pa.time64("us"), pa.timestamp("us")),
    (10.256, pa.float64(), pa.decimal128(4, 2)),
    (0.1, pa.float64(), pa.float32()),
    (1e39, pa.float64(), pa.float32()),
    (2**53 + 1, pa.int64(), pa.float64()),
    (2**24 + 1, pa.int32(), pa.float32()),
    (1.5, pa.float64(), pa.int64()),
    (NAN, pa.float64(), pa.int64()),
    (300, pa.int64(), pa.int8()),
    (-1, pa.int64(), pa.uint64()),
    (Decimal("1.25"), pa.decimal128(3, 2), pa.decimal128(3, 1)),
    (Decimal("1.25"), pa.decimal128(3, 2), pa.int64()),
    (Decimal("0.10"), pa.decimal128(3, 2), pa.float64()),
    (10**10, pa.int64(), pa.decimal128(9, 0)),
    (126, pa.int64(), pa.decimal128(38, 38)),
    (2**63 - 1, pa.int64(), pa.decimal32(9, 2)),
    (Decimal(10**37), pa.decimal128(38, 0), pa.decimal32(9, 2)),
    (Decimal("0.1"), pa.decimal128(38, 38), pa.decimal128(38, 0)),
    (Decimal(10**27), pa.decimal128(38, 10), pa.decimal128(38, 38)),
    (Decimal(10**75), pa.decimal256(76, 0), pa.decimal256(76, 38)),
    (DAY.replace(microsecond=1), pa.timestamp("us"), pa.timestamp("ms")),
    (time(5, 0, 0, 1), pa.time64("us"), pa.time32("ms")),
    (date(9999, 1, 1), pa.date32(), pa.timestamp("ns")),
    (DAY, pa.timestamp("us"), pa.timestamp("us", tz="UTC")),
    (b"\xff", pa.binary(), pa.string()),
    (b"abc", pa.binary(), pa.binary(2)),
    ("1", pa.string(), pa.int64()),
    (1, pa.int64(), pa.string()),
]
"""Values that the declared type does not have."""

NESTS: dict[str, tuple[Callable[[pa.DataType], pa.DataType], Callable[[Any], Any]]] = {
    "column": (lambda kind: kind, lambda value: value),
    "struct": (lambda kind: pa.struct([("a", kind)]), lambda value: {"a": value}),
    "list": (pa.list_, lambda value: [value]),
    "map": (lambda kind: pa.map_(pa.string(), kind), lambda value: [("k", value)]),
}


class Ways:
    """The ways to write a table into a new topic of a declared type."""

    def __init__(self, folder: Path, server: str) -> None:
        self._folder = folder
        self._server = server

    def put(self, rows: pa.Table, want: pa.DataType) -> pa.Table:
        """`Sink.put`."""
        stream = self._topic(want)
        with streamfactory.open_sink(stream) as sink:
            sink.put(rows)
        return self._rows(stream)

    def copy(self, rows: pa.Table, want: pa.DataType) -> pa.Table:
        """`streamfactory.copy`."""
        source, stream = self._stream(), self._topic(want)
        with streamfactory.open_sink(source) as sink:
            sink.put(rows)
        streamfactory.copy(source, stream, writer_id="w")
        return self._rows(stream)

    def publish(self, rows: pa.Table, want: pa.DataType) -> pa.Table:
        """`streamfactory.publish` of Parquet."""
        stream, path = self._topic(want), self._folder / f"{uuid.uuid4().hex}.parquet"
        parquet.write_table(rows, path)
        streamfactory.publish(stream, str(path))
        return self._rows(stream)

    def push(self, rows: pa.Table, want: pa.DataType) -> pa.Table:
        """`push_table(cast=True)`."""
        sink, table = streamfactory.push_table(pa.schema([("x", want)]), cast=True)
        with sink:
            sink.write(rows)
        return table.to_reader().read_all()

    def plain_flight(self, rows: pa.Table, want: pa.DataType) -> pa.Table:
        """A put of a Flight client of another program."""
        topic = uuid.uuid4().hex
        stream = {
            "streamType": "flight",
            "stream.flight.location": self._server,
            "stream.flight.topic.name": topic,
        }
        with streamfactory.open_sink(stream) as sink:
            sink.put(pa.schema([("x", want)]).empty_table())
        with closing(flight.connect(self._server)) as client:
            path = flight.FlightDescriptor.for_path(topic)
            writer, _ = client.do_put(path, rows.schema)
            try:
                writer.write_table(rows)
                writer.close()
            except pa.ArrowException as error:
                raise SchemaMismatch(str(error)) from error
        return self._rows(stream)

    def _topic(self, want: pa.DataType) -> dict[str, str]:
        stream = self._stream()
        with streamfactory.open_sink(stream) as sink:
            sink.put(empty_rows(pa.schema([("x", want)])))
        return stream

    def _stream(self) -> dict[str, str]:
        return {
            "streamType": "memory",
            "stream.memory.topic.name": uuid.uuid4().hex,
            "stream.memory.store": self._folder.name,
        }

    def _rows(self, stream: dict[str, str]) -> pa.Table:
        with streamfactory.open(stream) as opened:
            return opened.to_reader().read_all()


WAYS = ("put", "copy", "publish", "push", "plain_flight")


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ways]:
    folder = tmp_path_factory.mktemp("ways")
    with streamfactory.serve(path=str(folder / "topics")) as server:
        yield Ways(folder, server.location)


@pytest.mark.parametrize("nest", NESTS)
@pytest.mark.parametrize("way", WAYS)
def test_what_loses_is_refused_with_row_and_column(
    way: str, nest: str, ways: Ways
) -> None:
    kind, wrap = NESTS[nest]
    for value, have, want in LOSSY:
        rows = pa.table({"x": pa.array([wrap(None), wrap(value)], kind(have))})
        with pytest.raises(SchemaMismatch) as caught:
            getattr(ways, way)(rows, kind(want))
        assert "column 'x" in str(caught.value)
        if leaf_refusal(have, want) is None:  # else no row of this type fits
            assert "row 1" in str(caught.value), (value, have, want)


@pytest.mark.parametrize("way", ["put", "push"])
@settings(
    max_examples=cases(100),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_generated_pairs_are_kept_or_refused_alike(
    way: str, ways: Ways, data: Any
) -> None:
    have = data.draw(kinds())
    want = data.draw(st.one_of(neighbours(have), kinds()))
    array = data.draw(arrays(have, 3))
    rows = pa.record_batch([array], names=["x"])
    wanted = pa.schema([("x", want)])
    if way == "put":
        wanted = canonical_schema(wanted, dictionaries=True)
    expected: pa.RecordBatch | SchemaMismatch
    try:
        expected = conform(rows, wanted)
    except SchemaMismatch as error:
        expected = error
    if isinstance(expected, SchemaMismatch):
        with pytest.raises(SchemaMismatch) as caught:
            getattr(ways, way)(pa.Table.from_batches([rows]), want)
        found = (caught.value.what, caught.value.row)
        assert found == (expected.what, expected.row)
        return
    stored = getattr(ways, way)(pa.Table.from_batches([rows]), want)
    assert is_same(expected.column(0).to_pylist(), stored["x"].to_pylist())


PAGE = Path(__file__).parents[2] / "docs" / "types.md"
FAMILIES = {
    "boolean": pa.bool_(),
    "integer": pa.int64(),
    "float": pa.float64(),
    "decimal": pa.decimal128(9, 2),
    "text": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp without zone": pa.timestamp("us"),
    "duration": pa.duration("us"),
    "interval": pa.month_day_nano_interval(),
}


def test_the_page_has_the_pairs_that_are_converted() -> None:
    rows = re.findall(
        r"^\| ([a-z ]+) \| ([a-z, -]+) \|", PAGE.read_text(), re.MULTILINE
    )
    stated = {have: set(wants.split(", ")) - {"-"} for have, wants in rows[1:]}
    assert stated == {
        name: {
            other
            for other, want in FAMILIES.items()
            if other != name and leaf_refusal(have, want) is None
        }
        for name, have in FAMILIES.items()
    }
