"""Remedies for columns of a type that tables do not have."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.everytype import EVERY_TYPE

from streamfactory.conversion.conform import conform
from streamfactory.spi import SchemaMismatch
from streamfactory.spi.ddl import parse_ddl
from streamfactory.tables.columns import lacks_type

WORDS = (
    "uint half 256 view large time32 time64 timestamp duration uuid json bool8 date64"
)
LACKING = sorted(
    name for name in EVERY_TYPE if any(word in name for word in WORDS.split())
)


@pytest.mark.parametrize("name", LACKING)
def test_a_type_to_declare_is_named_where_values_are_converted(name: str) -> None:
    kind = EVERY_TYPE[name].type
    refused = lacks_type("a table", "c", kind)
    assert refused.remedy is not None
    advice, _, text = refused.remedy.rpartition(" to ")
    declared = parse_ddl(f"c {text.replace('...', 'bigint')}")
    rows = pa.record_batch({"c": pa.nulls(1, kind)})
    if advice.startswith("declare it"):
        assert conform(rows, declared)["c"].to_pylist() == [None]
        return
    assert advice == "cast it"
    with pytest.raises(SchemaMismatch, match="not converted"):
        conform(rows, declared)
