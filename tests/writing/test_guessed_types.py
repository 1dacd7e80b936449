"""A warning before the first rows create a topic that later rows would not fit."""

from __future__ import annotations

import logging
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.wiring.writing.sink import Sink

PRICE = [Decimal("1.25")]
GUESSED = {
    "null": ({"x": [None]}, "x null", "x string"),
    "list": ({"a": [1], "x": [[]]}, "x array<null>", "a bigint, x array<string>"),
    "struct": ([{"x": {"q": None}}], "x struct<q:null>", "x struct<q:string>"),
    "map": (
        pa.table({"x": pa.array([[]], pa.map_(pa.string(), pa.null()))}),
        "x map<string,null>",
        "x map<string,string>",
    ),
    "decimal": ({"p": PRICE}, "p decimal(3,2)", "p decimal(38,2)"),
    "pandas": (pd.DataFrame({"p": PRICE}), "p decimal(3,2)", "p decimal(38,2)"),
}
CERTAIN: dict[str, Any] = {
    "declared decimal": pa.table({"p": pa.array(PRICE, pa.decimal128(10, 2))}),
    "empty list": pa.table({"x": pa.array([[]], pa.list_(pa.int64()))}),
    "numbers": {"a": [1, None], "b": ["x", None]},
}


@pytest.mark.parametrize("name", GUESSED)
def test_types_that_few_rows_decide_are_named_once_with_what_to_declare(
    sink_factory: Callable[..., Sink], caplog: pytest.LogCaptureFixture, name: str
) -> None:
    rows, narrow, declaration = GUESSED[name]
    sink = sink_factory()
    with caplog.at_level(logging.WARNING, "streamfactory"):
        sink.put(rows)
        sink.put(rows)
    (record,) = caplog.records
    assert record.getMessage() == (
        f"stream 'memory:clicks': the first rows create a topic with the columns "
        f"{narrow}, which values of later rows may not fit; to prevent it, set "
        f'schema = "{declaration}"'
    )


@pytest.mark.parametrize("name", CERTAIN)
def test_types_that_the_caller_decided_are_not_named(
    sink_factory: Callable[..., Sink], caplog: pytest.LogCaptureFixture, name: str
) -> None:
    with caplog.at_level(logging.WARNING, "streamfactory"):
        sink_factory().put(CERTAIN[name])
    assert caplog.records == []


def test_what_the_warning_names_takes_the_later_rows(
    sink_factory: Callable[..., Sink], caplog: pytest.LogCaptureFixture
) -> None:
    sink = sink_factory({"schema": "p decimal(38,2), x array<string>"})
    with caplog.at_level(logging.WARNING, "streamfactory"):
        sink.put({"p": PRICE, "x": [[]]})
        sink.put({"p": [Decimal("12345678.90")], "x": [["a"]]})
    assert caplog.records == []
