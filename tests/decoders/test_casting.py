"""Text as numbers: every format has one meaning for it, and no value changes."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.decoders.decoding import decode, options
from tests.proving.generated import cases

from streamfactory.decoders import csv, json, text
from streamfactory.decoders.columns.casting import Casting

if TYPE_CHECKING:
    from streamfactory.spi import Decoder

CSV, JSON = csv.streamfactory_decoder(), json.streamfactory_decoder()
TEXT = text.streamfactory_decoder()
FORMATS: dict[str, tuple[Decoder, dict[str, str], str]] = {
    "csv": (CSV, {"header": "value"}, '"{}"'),
    "csv, exact": (CSV, {"header": "value", "numbers": "exact"}, '"{}"'),
    "text": (TEXT, {}, "{}"),
    "json": (JSON, {"numbers_as_text": "true"}, '{{"value":"{}"}}'),
}
"""The decoder, its options, and the message of a value."""
BEYOND = [*("1e400", "-1e400", "1.8e308"), "1" + "0" * 400, "1e99999999999"]
TINY = [*("1e-200", "1e-1000000000", "0e-2147483647", "0." + "0" * 130 + "1")]
"""Arrow reads past the end of a table to make decimals of them, or crashes."""
WORDS = [*("nan", "NaN", "inf", "INF", "Infinity", "-inf", "-Infinity")]
ODD = ["nan(1)", "nan(abc)", "infinite", "1e", "--inf", "", " nan"]


def read(name: str, value: str, kind: str) -> Any:
    """The value, or the code of the error."""
    plugin, given, form = FORMATS[name]
    how = options(plugin, schema=f"value {kind}", **given)
    assert plugin.decoder is not None
    decoded = decode(plugin.decoder(how, "t"), [form.format(value).encode()])
    if decoded.errors:
        return decoded.errors[0].code
    return decoded.rows.column(0)[0].as_py()


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("kind", ["double", "float", "decimal(38,2)", "bigint"])
def test_a_number_that_its_type_lacks_is_refused(name: str, kind: str) -> None:
    for value in [*BEYOND, *ODD]:
        assert read(name, value, kind) == "value", value


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("kind", ["decimal(5,2)", "decimal(38,0)", "decimal(38,38)"])
def test_a_number_with_too_many_places_for_a_decimal_is_refused(
    name: str, kind: str
) -> None:
    for value in TINY:
        assert read(name, value, kind) == "value", value


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("kind", ["double", "float"])
def test_the_same_words_are_no_finite_number(name: str, kind: str) -> None:
    for word in WORDS:
        found, expected = read(name, word, kind), float(word)
        assert found == expected or (math.isnan(found) and math.isnan(expected)), word


def numerals() -> st.SearchStrategy[str]:
    digits = st.text("0123456789", min_size=1, max_size=80)
    zeros = st.integers(0, 80).map(lambda count: "0" * count)
    whole = st.builds("{}{}{}".format, zeros, digits, zeros)
    point = st.builds(".{}{}".format, zeros, digits) | st.just("")
    power = st.integers(-90, 90).map("e{}".format) | st.just("")
    sign = st.sampled_from(["", "-"])
    return st.builds("{}{}{}{}".format, sign, whole, point, power)


DECIMALS = [
    *(pa.decimal128(38, 0), pa.decimal128(38, 2), pa.decimal128(38, 38)),
    *(pa.decimal128(5, 2), pa.decimal128(1, 0), pa.decimal256(76, 40)),
]


@settings(max_examples=cases(300))
@given(numerals(), st.sampled_from(DECIMALS), st.booleans())
@example("3.4e38", pa.decimal128(38, 2), False)
@example("1" + "0" * 400, pa.decimal128(38, 2), False)
@example("1e-77", pa.decimal128(5, 2), False)
@example(f"{2**127}", pa.decimal128(38, 0), False)
@example(f"-{2**127}", pa.decimal128(38, 0), False)
@example("1e-400", pa.decimal128(38, 0), False)
def test_a_decimal_is_the_number_of_its_text_or_is_refused(
    numeral: str, kind: pa.DataType, exact: bool
) -> None:
    found, faults = Casting(exact=exact).cast(pa.array([numeral]), pa.field("x", kind))
    with localcontext(prec=600):
        number, unit = Decimal(numeral), Decimal(1).scaleb(-kind.scale)
        fits = abs(number) < Decimal(10) ** (kind.precision - kind.scale)
        if not faults:
            assert found[0].as_py() == number
        elif fits and number == number.quantize(unit):
            # Refused although no digit would be lost: zeros that Arrow has no room for.
            assert exact or len(numeral) > kind.precision - kind.scale
