"""pandas: values, types and index come back as they were."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from tests.engines.conftest import properties

import streamfactory
from streamfactory.spi import MisuseError, SchemaMismatch

if TYPE_CHECKING:
    from pathlib import Path

pandas = streamfactory.engines.pandas

LARGE = 2**53 + 1
ARROW = pd.ArrowDtype
EVERY = pd.DataFrame(
    {
        "zone": pd.to_datetime(["2026-01-01", "2026-06-01", None]).tz_localize(
            "Europe/Berlin"
        ),
        "nanos": pd.to_datetime([1767225600000000001, 1, None]),
        "Int64": pd.array([LARGE, None, 3], "Int64"),
        "UInt64": pd.array([2**63, 1, None], "UInt64"),
        "boolean": pd.array([True, None, False], "boolean"),
        "string": pd.array(["a", None, "c"], "string"),
        "category": pd.Categorical(
            ["x", "y", None], categories=["y", "x", "z"], ordered=True
        ),
        "text": ["a", None, "b"],
        "int8": np.array([1, 2, 3], "int8"),
        "float": [0.5, None, 1.0],
        "duration": pd.to_timedelta(["1s", None, "2s"]),
        "price": [Decimal("1.25"), None, Decimal("3.50")],
        "list": [[LARGE, None], None, []],
        "arrow list": pd.Series([[1], None, []], dtype=ARROW(pa.list_(pa.int8()))),
        "arrow zone": pd.Series(
            [pd.Timestamp("2026-01-01", tz="Asia/Tokyo"), None, None],
            dtype=ARROW(pa.timestamp("us", "Asia/Tokyo")),
        ),
    }
)
FRAMES = {
    "numbered": EVERY,
    "named": EVERY.set_axis(pd.Index([10, 20, 30], name="key")),
    "unnamed": EVERY.set_axis(pd.Index(["a", "b", "c"])),
    "two levels": EVERY.set_index(["text", "int8"]),
    "times": EVERY.set_axis(
        pd.to_datetime(["2026-01-01", "2026-01-02", "2026-01-03"]).tz_localize(
            "Asia/Tokyo"
        )
    ),
    "steps": EVERY.set_axis(pd.RangeIndex(5, 11, 2, name="step")),
}


@pytest.fixture(params=["memory", "file"])
def stream(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    kind = request.param
    return {
        **properties(kind, tmp_path / "streams"),
        f"stream.{kind}.partitions": "1",
    }


def put(stream: dict[str, str], rows: Any) -> None:
    with streamfactory.open_sink(stream) as sink:
        sink.put(rows)


@pytest.mark.parametrize("name", FRAMES)
def test_frame_comes_back_as_it_was(stream: dict[str, str], name: str) -> None:
    frame = FRAMES[name]
    put(stream, frame)
    back = pandas.to_pandas(stream, like=frame)
    pd.testing.assert_frame_equal(back, frame)
    chunks = list(pandas.chunks(stream, rows=2, like=frame))
    assert [len(chunk) for chunk in chunks] == [2, 1]
    pd.testing.assert_frame_equal(pd.concat(chunks), frame)


def test_values_do_not_change_without_a_model(stream: dict[str, str]) -> None:
    put(stream, EVERY)
    back = pandas.to_pandas(stream)
    assert back["Int64"].tolist() == [LARGE, pd.NA, 3]
    assert back["UInt64"].tolist() == [2**63, 1, pd.NA]
    assert back["boolean"].tolist() == [True, pd.NA, False]
    assert back["list"].tolist()[0] == [LARGE, None]
    assert back["int8"].dtype == "int8"
    assert back["price"].tolist() == EVERY["price"].tolist()
    assert back["zone"].dt.tz_convert("Europe/Berlin").equals(EVERY["zone"])


def test_index_goes_on_from_one_frame_to_the_next(clicks: dict[str, str]) -> None:
    frames = list(pandas.chunks(clicks, rows=120))
    assert pd.concat(frames).index.tolist() == list(range(300))
    assert [len(frame) for frame in frames] == [120, 120, 60]


def test_stream_without_matching_rows_is_one_frame_without_rows(
    clicks: dict[str, str],
) -> None:
    nothing = ds.field("id") < 0
    (frame,) = pandas.chunks(clicks, filter=nothing)
    assert frame.shape == (0, 3)
    assert pandas.to_pandas(clicks, filter=nothing).columns.tolist() == [
        "id",
        "page",
        "price",
    ]


def test_value_that_the_model_lacks_is_refused(stream: dict[str, str]) -> None:
    put(stream, EVERY)
    narrow = EVERY.assign(category=pd.Categorical(["x"] * 3, categories=["x"]))
    with pytest.raises(SchemaMismatch, match="column 'category' has values"):
        pandas.to_pandas(stream, like=narrow)
    whole = EVERY.assign(Int64=[1, 2, 3])
    with pytest.raises(SchemaMismatch, match="column 'Int64' has values"):
        pandas.to_pandas(stream, like=whole)


def test_types_are_decided_once(stream: dict[str, str]) -> None:
    with pytest.raises(MisuseError, match="both decide the types"):
        pandas.chunks(stream, arrow_types=True, like=EVERY)
    with pytest.raises(MisuseError, match="pass a data frame of pandas"):
        pandas.to_pandas(stream, like=EVERY["int8"])


def test_nanoseconds_of_a_day_are_kept(stream: dict[str, str]) -> None:
    put(stream, pa.table({"at": pa.array([3_723_000_000_004], pa.time64("ns"))}))
    (value,) = pandas.to_pandas(stream)["at"].array.__arrow_array__()
    assert value.value == 3_723_000_000_004
