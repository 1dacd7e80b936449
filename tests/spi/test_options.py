"""Options: what is read, and what is refused in words, never made a default."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamfactory.spi import (
    BOOLEAN,
    INTEGER,
    JSON_OBJECT,
    LIST,
    NUMBER,
    PATH,
    PERIOD,
    SIZE,
    STRING,
    Option,
    OptionType,
    choice,
)

WORDS = choice("fail", "skip", "null")
DAY = 86_400_000


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (STRING, "", ""),
        (STRING, " a b ", " a b "),
        (INTEGER, "42", 42),
        (INTEGER, " -7 ", -7),
        (INTEGER, "+0007", 7),
        (INTEGER, "9223372036854775807", 2**63 - 1),
        (INTEGER, "-9223372036854775808", -(2**63)),
        (NUMBER, "0.25", 0.25),
        (NUMBER, " 1e-3 ", 0.001),
        (NUMBER, ".5", 0.5),
        (BOOLEAN, "true", True),
        (BOOLEAN, " False ", False),
        (PERIOD, "250", 250),
        (PERIOD, "0", 0),
        (PERIOD, "250ms", 250),
        (PERIOD, "30s", 30_000),
        (PERIOD, "5m", 300_000),
        (PERIOD, "5M", 300_000),
        (PERIOD, "4h30m", 16_200_000),
        (PERIOD, "1d 2h 3m 4s 5ms", DAY + 7_384_005),
        (PERIOD, "10m5ms", 600_005),
        (SIZE, "8388608", 8_388_608),
        (SIZE, "512K", 512 * 1024),
        (SIZE, "150M", 150 * 1024**2),
        (SIZE, "1.1G", 1_181_116_006),
        (SIZE, "2 GiB", 2 * 1024**3),
        (SIZE, "1tb", 1024**4),
        (SIZE, "7B", 7),
        (SIZE, "9007199254740993", 9_007_199_254_740_993),
        (LIST, "a", ("a",)),
        (LIST, " a , b,c ", ("a", "b", "c")),
        (JSON_OBJECT, '{"a": [0, 1]}', {"a": [0, 1]}),
        (WORDS, "SKIP", "skip"),
        (WORDS, " null ", "null"),
    ],
)
def test_a_good_value_is_read(kind: OptionType, text: str, value: Any) -> None:
    parsed = kind.parse(text)
    assert parsed == value
    assert type(parsed) is type(value)


ARABIC_12 = "\u0661\u0662"
PERIODS = "is not a duration: write 250ms, 30s, 5m, 4h30m, 1d, or plain milliseconds"
SIZES = "is not a size: write 8388608, 512K, 150M or 1.1G"


@pytest.mark.parametrize(
    ("kind", "text", "complaint"),
    [
        (INTEGER, "", "is not a whole number"),
        (INTEGER, "  ", "is not a whole number"),
        (INTEGER, "1.0", "is not a whole number"),
        (INTEGER, "1_000", "is not a whole number"),
        (INTEGER, "0x10", "is not a whole number"),
        (INTEGER, "1 000", "is not a whole number"),
        (INTEGER, ARABIC_12, "is not a whole number"),
        (INTEGER, "\u00b2", "is not a whole number"),
        (INTEGER, "9223372036854775808", "does not fit 64 bits"),
        (INTEGER, "-9223372036854775809", "does not fit 64 bits"),
        (INTEGER, "9" * 5000, "does not fit 64 bits"),
        (NUMBER, "", "is not a number"),
        (NUMBER, "nan", "is not a number"),
        (NUMBER, "inf", "is not a number"),
        (NUMBER, "1_0.5", "is not a number"),
        (NUMBER, "1,5", "is not a number"),
        (NUMBER, ARABIC_12, "is not a number"),
        (NUMBER, "1e999", "is not a finite number"),
        (BOOLEAN, "", "is neither true nor false"),
        (BOOLEAN, "yes", "is neither true nor false"),
        (BOOLEAN, "1", "is neither true nor false"),
        (PERIOD, "", PERIODS),
        (PERIOD, " ", PERIODS),
        (PERIOD, "-5s", PERIODS),
        (PERIOD, "5 0", PERIODS),
        (PERIOD, "5x", PERIODS),
        (PERIOD, "1.5h", PERIODS),
        (PERIOD, "30m4h", PERIODS),
        (PERIOD, "5m5m", PERIODS),
        (PERIOD, f"{ARABIC_12}s", PERIODS),
        (PERIOD, ARABIC_12, PERIODS),
        (PERIOD, "9" * 30, "does not fit 64 bits"),
        (PERIOD, "9" * 5000 + "d", "does not fit 64 bits"),
        (PERIOD, "200000000000d", "does not fit 64 bits"),
        (SIZE, "", SIZES),
        (SIZE, "-1", SIZES),
        (SIZE, "1.5", SIZES),
        (SIZE, "1.M", SIZES),
        (SIZE, "1P", SIZES),
        (SIZE, f"{ARABIC_12}K", SIZES),
        (SIZE, "9" * 400 + "T", "does not fit 64 bits"),
        (SIZE, "8388608T", "does not fit 64 bits"),
        (SIZE, "9223372036854775808", "does not fit 64 bits"),
        (LIST, "", "has an empty entry: write a,b,c"),
        (LIST, "a,,b", "has an empty entry: write a,b,c"),
        (LIST, "a,", "has an empty entry: write a,b,c"),
        (PATH, "", "is not a path"),
        (PATH, "  ", "is not a path"),
        (PATH, "a\0b", "is not a path"),
        (PATH, "s3://bucket/x", "is a URL, expected a local path"),
        (PATH, "file:///tmp/x", "is a URL, expected a local path"),
        (
            PATH,
            "~no-such-user-here/x",
            "begins with ~ of a user without a home directory",
        ),
        (JSON_OBJECT, "[1]", "is not a JSON object"),
        (JSON_OBJECT, '"a"', "is not a JSON object"),
        (
            JSON_OBJECT,
            "{a: 1}",
            (
                "is not JSON: Expecting property name enclosed in double quotes: "
                "line 1 column 2 (char 1)"
            ),
        ),
        (JSON_OBJECT, "[" * 100_000, "is nested too deeply"),
        (WORDS, "", "is not one of fail, skip, null"),
        (WORDS, "skipp", "is not one of fail, skip, null"),
    ],
)
def test_a_bad_value_is_refused_with_a_message(
    kind: OptionType, text: str, complaint: str
) -> None:
    with pytest.raises(ValueError) as caught:
        kind.parse(text)
    assert str(caught.value) == complaint


@given(st.sampled_from([INTEGER, NUMBER, PERIOD, SIZE, BOOLEAN]), st.text(max_size=12))
def test_no_text_makes_a_type_fail_otherwise(kind: OptionType, text: str) -> None:
    try:
        value = kind.parse(text)
    except ValueError as error:
        complaint = str(error)
    else:
        complaint = "is read"
        assert text.strip().isascii()
        assert isinstance(value, int | float)
    assert complaint.startswith(("is ", "does not fit "))


def test_a_path_is_made_absolute_where_it_is_read(tmp_path: Path) -> None:
    assert PATH.parse("data/x") == str(tmp_path / "data" / "x")
    assert PATH.parse("~/x") == str(Path.home() / "x")


# --- bounds and validators ------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "text", "complaint"),
    [
        (
            Option("n", "N.", INTEGER, minimum=1),
            "0",
            "is below the minimum, 1",
        ),
        (
            Option("n", "N.", INTEGER, maximum=1_000_000),
            "1000001",
            "is above the maximum, 1000000",
        ),
        (
            Option("n", "N.", NUMBER, maximum=0.5),
            "0.6",
            "is above the maximum, 0.5",
        ),
        (
            Option("n", "N.", PERIOD, minimum=1000),
            "999ms",
            "is below the minimum, 1000",
        ),
        (
            Option("n", "N.", validator=lambda v: "is odd" if len(v) % 2 else None),
            "abc",
            "is odd",
        ),
    ],
)
def test_bounds_and_validators_report_the_problem(
    option: Option, text: str, complaint: str
) -> None:
    with pytest.raises(ValueError) as caught:
        option.parse(text)
    assert str(caught.value) == complaint


@pytest.mark.parametrize("text", ["1", "1000000"])
def test_bounds_are_inclusive(text: str) -> None:
    option = Option("n", "N.", INTEGER, minimum=1, maximum=1_000_000)
    assert option.parse(text) == int(text)


@pytest.mark.parametrize(
    ("declaration", "complaint"),
    [
        ({"key": "a b"}, "option key 'a b' is not a dotted name"),
        ({"key": ""}, "option key '' is not a dotted name"),
        (
            {"key": "a", "aliases": ("b c",)},
            "option key 'b c' is not a dotted name",
        ),
        (
            {"key": "a", "secret": True, "type": INTEGER},
            "option 'a': a secret must be a string",
        ),
        (
            {"key": "a", "required": True, "default": "x"},
            "option 'a': required and a default exclude each other",
        ),
        ({"key": "a", "minimum": 1}, "option 'a': bounds need a number"),
        (
            {"key": "a", "type": INTEGER, "default": "x"},
            "is not a whole number",
        ),
        (
            {"key": "a", "type": INTEGER, "default": "0", "minimum": 1},
            "is below the minimum, 1",
        ),
    ],
)
def test_a_declaration_that_contradicts_itself_is_refused(
    declaration: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ValueError) as caught:
        Option(doc="Doc.", **declaration)
    assert str(caught.value) == complaint
