"""The words that all streams share: declared soundly, and each type read strictly."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamfactory.spi import Guarantee, Option, OptionType
from streamfactory.wiring.options.shared import SHARED_OPTIONS, by_spelling
from streamfactory.wiring.options.types import (
    ASSIGNMENT,
    GUARANTEE,
    INSTANCE,
    OFFSETS,
    OUT_OF_RANGE,
    PATTERN,
    RESET,
    SCHEMA,
    TIMESTAMPS,
    Ago,
)
from streamfactory.wiring.options.vocabulary import FRAMEWORK_OPTIONS

OPTIONS = [*SHARED_OPTIONS.values(), *FRAMEWORK_OPTIONS.values()]


def test_no_two_options_share_a_spelling() -> None:
    spellings = [key.lower() for option in OPTIONS for key in option.spellings]
    assert len(by_spelling(OPTIONS)) == len(spellings)
    assert sorted(set(spellings)) == sorted(spellings)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.key)
def test_option_is_documented_and_its_example_is_good(option: Option) -> None:
    assert option.doc.endswith(".")
    assert "\n" not in option.doc
    assert option.doc[0].isupper()
    if option.example is not None:
        option.parse(option.example)
    assert option.applies <= {"read", "write", "spark"}


def test_keys_of_pinot_keep_their_defaults() -> None:
    defaults = {key: option.default for key, option in SHARED_OPTIONS.items()}
    assert defaults["connection.timeout.millis"] == "30000"
    assert defaults["fetch.timeout.millis"] == "5000"
    assert defaults["idle.timeout.millis"] == "180000"


# --- types ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (RESET, "smallest", "earliest"),
        (RESET, " LARGEST ", "latest"),
        (RESET, "Earliest", "earliest"),
        (RESET, "latest", "latest"),
        (RESET, "2d", Ago(172_800_000)),
        (RESET, "4h30m", Ago(16_200_000)),
        (RESET, "0s", Ago(0)),
        (RESET, "1660048298222", 1_660_048_298_222),
        (RESET, "0", 0),
        (RESET, "2022-08-09T12:31:38.222Z", 1_660_048_298_222),
        (RESET, "2022-08-09t12:31:38.222z", 1_660_048_298_222),
        (RESET, "2022-08-09T12:31:38Z", 1_660_048_298_000),
        (RESET, "2022-08-09T12:31Z", 1_660_048_260_000),
        (RESET, "2022-08-09", 1_660_003_200_000),
        (RESET, "2022-08-09T14:31:38.222999999+02:00", 1_660_048_298_222),
        (RESET, "1970-01-01T00:00:00Z", 0),
        (OFFSETS, "Largest", "latest"),
        (OFFSETS, "earliest", "earliest"),
        (OFFSETS, '{"t": {"0": 23, "10": -2}}', {"t": {0: 23, 10: -2}}),
        (TIMESTAMPS, '{"t": {"0": 0}}', {"t": {0: 0}}),
        (ASSIGNMENT, '{"t": [0, 3], "u": [1]}', {"t": (0, 3), "u": (1,)}),
        (PATTERN, "clicks-.*", "clicks-.*"),
        (OUT_OF_RANGE, "TRUE", "fail"),
        (OUT_OF_RANGE, " false ", "earliest"),
        (OUT_OF_RANGE, "Latest", "latest"),
        (GUARANTEE, "Exactly-Once", Guarantee.EXACTLY_ONCE),
        (INSTANCE, "0/1", (0, 1)),
        (INSTANCE, " 2/3 ", (2, 3)),
        (SCHEMA, "id bigint", "id bigint"),
    ],
)
def test_a_good_value_is_read(kind: OptionType, text: str, value: Any) -> None:
    assert kind.parse(text) == value


NO_RESET = (
    "is none of smallest, largest, earliest, latest, a period such as 2d, a date such "
    "as 2022-08-09 (in UTC), a time such as 2022-08-09T12:31:38.222Z, or milliseconds"
)
NO_OFFSETS = 'is neither earliest, latest nor JSON such as {"topic": {"0": 23}}'
NO_TIMES = 'is not JSON such as {"topic": {"0": 1700000000000}}'
NO_ASSIGNMENT = 'is not JSON such as {"topic": [0, 1]}'
NO_INSTANCE = "is not of the form 0/3: index of this instance, from 0, and their number"


@pytest.mark.parametrize(
    ("kind", "text", "complaint"),
    [
        (RESET, "", NO_RESET),
        (RESET, "-2d", NO_RESET),
        (RESET, "-1", NO_RESET),
        (RESET, "none", NO_RESET),
        (RESET, "2022-02-30", "is not a valid date"),
        (RESET, "2022-08-09T12:31:38", NO_RESET),
        (RESET, "2022-08-09 12:31:38Z", NO_RESET),
        (RESET, "\u0662d", NO_RESET),
        (RESET, "2022-13-09T12:31:38Z", "is not a valid time"),
        (RESET, "2022-02-30T12:31:38Z", "is not a valid time"),
        (RESET, "1969-12-31T23:59:59Z", "is not a valid time"),
        (RESET, "0001-01-01T00:00:00+23:59", "is not a valid time"),
        (RESET, "9" * 40, "does not fit 64 bits"),
        (OFFSETS, "", NO_OFFSETS),
        (OFFSETS, "first", NO_OFFSETS),
        (OFFSETS, "{}", NO_OFFSETS),
        (OFFSETS, "23", NO_OFFSETS),
        (OFFSETS, '{"t": 23}', NO_OFFSETS),
        (OFFSETS, '{"t": {"0": "23"}}', NO_OFFSETS),
        (OFFSETS, '{"t": {"0": 1.0}}', NO_OFFSETS),
        (OFFSETS, '{"t": {"0": true}}', NO_OFFSETS),
        (OFFSETS, '{"t": {"0": -3}}', NO_OFFSETS),
        (OFFSETS, '{"t": {"0": 9223372036854775808}}', NO_OFFSETS),
        (OFFSETS, '{"t": {"00": 1}}', NO_OFFSETS),
        (OFFSETS, '{"t": {" 0": 1}}', NO_OFFSETS),
        (OFFSETS, '{"t": {"-1": 1}}', NO_OFFSETS),
        (OFFSETS, '{"t": {"2147483648": 1}}', NO_OFFSETS),
        (OFFSETS, '{"t": {"0": 1, "0": 2}}', NO_OFFSETS),
        (OFFSETS, '{"": {"0": 1}}', NO_OFFSETS),
        (OFFSETS, "[" * 100_000, NO_OFFSETS),
        (TIMESTAMPS, '{"t": {"0": -1}}', NO_TIMES),
        (TIMESTAMPS, "latest", NO_TIMES),
        (ASSIGNMENT, '{"t": "0,1"}', NO_ASSIGNMENT),
        (ASSIGNMENT, '{"t": []}', NO_ASSIGNMENT),
        (ASSIGNMENT, '{"t": ["0"]}', NO_ASSIGNMENT),
        (ASSIGNMENT, '{"t": [-1]}', NO_ASSIGNMENT),
        (ASSIGNMENT, "{}", NO_ASSIGNMENT),
        (
            PATTERN,
            "clicks-(",
            "is not a regular expression of RE2: missing ): clicks-(",
        ),
        (PATTERN, "", "matches no topic"),
        (OUT_OF_RANGE, "ignore", "is not one of fail, earliest, latest"),
        (
            GUARANTEE,
            "once",
            "'once' is not one of at-most-once, at-least-once, exactly-once",
        ),
        (INSTANCE, "1", NO_INSTANCE),
        (INSTANCE, "/", NO_INSTANCE),
        (INSTANCE, "-1/3", NO_INSTANCE),
        (INSTANCE, "\u0661/\u0663", NO_INSTANCE),
        (INSTANCE, "9" * 5000 + "/1", NO_INSTANCE),
        (INSTANCE, "3/3", "counts instances from 0: the last of 3 is 2/3"),
        (INSTANCE, "0/0", "counts instances from 0: the last of 3 is 2/3"),
        (
            SCHEMA,
            "id bigint,",
            "is not a schema: found the end, expected a column name",
        ),
    ],
)
def test_a_bad_value_is_refused_with_a_message(
    kind: OptionType, text: str, complaint: str
) -> None:
    with pytest.raises(ValueError) as caught:
        kind.parse(text)
    assert str(caught.value) == complaint


TYPES = [RESET, OFFSETS, TIMESTAMPS, ASSIGNMENT, PATTERN, OUT_OF_RANGE, INSTANCE]


@given(st.sampled_from(TYPES), st.text(max_size=20) | st.from_regex(r"\{.*\}"))
def test_no_text_makes_a_type_fail_otherwise(kind: OptionType, text: str) -> None:
    try:
        kind.parse(text)
    except ValueError as error:
        complaint = str(error)
    else:
        complaint = "is read"
    assert re.match(r"(is|does|matches|counts) ", complaint)
