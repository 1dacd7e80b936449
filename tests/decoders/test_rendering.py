"""Text that encoders write of times: what stands there, or an error."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamfactory.decoders.columns.rendering import rendered
from streamfactory.spi import SchemaMismatch
from streamfactory.wiring.core.values import encode_base64, plain_values

KINDS = [
    *(pa.timestamp(unit, zone) for unit in ("s", "ms", "us") for zone in (None, "UTC")),
    pa.timestamp("ns"),
    pa.date64(),
    pa.time64("us"),
    pa.time64("ns"),
]
NUMBERS = st.one_of(*(st.integers(-(2**n), 2**n - 1) for n in (63, 58, 48, 38, 28)))


@given(NUMBERS, st.sampled_from(KINDS))
def test_time_is_written_as_it_is_or_refused(number: int, kind: Any) -> None:
    column = pa.array([number, None], pa.int64()).view(kind)
    shown = plain_values(column, encode_base64)
    try:
        texts = rendered(column, "x").to_pylist()
    except SchemaMismatch:
        of_a_day = pa.types.is_time(kind) and "00:" <= shown[0] < "24:"
        of_years = not pa.types.is_time(kind) and "0001" <= shown[0] < "9999-12-32"
        assert not of_a_day
        assert not of_years or ("T" in shown[0] and kind == pa.date64())
    else:
        assert texts == shown


@pytest.mark.parametrize(
    ("number", "kind", "what"),
    [
        (2**60, pa.timestamp("s"), "column 'x' has years outside of 1 to 9999"),
        (86_400_000_000, pa.time64("us"), "column 'x' has times beyond 24 hours"),
        (-1, pa.time64("ns"), "column 'x' has times beyond 24 hours"),
        (1, pa.date64(), "column 'x' has dates with a time of day"),
    ],
)
def test_time_without_a_text_is_refused(
    number: int, kind: pa.DataType, what: str
) -> None:
    with pytest.raises(SchemaMismatch) as caught:
        rendered(pa.array([number], pa.int64()).view(kind), "x")
    assert caught.value.what == what
