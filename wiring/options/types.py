"""Types of framework options that `spi.options` does not have."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from streamfactory.spi import LIST, PERIOD, Guarantee, OptionType, choice
from streamfactory.spi.options import whole_number
from streamfactory.spi.partitions import MAX_PARTITION_ID
from streamfactory.spi.topics import topic_name_problem

_RESETS: Final = {"smallest": "earliest", "largest": "latest"}
_INSTANT: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{5,8}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})",
    re.IGNORECASE,
)
_DATE: Final = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
_ID: Final = re.compile("0|[1-9][0-9]{0,9}")


@dataclass(frozen=True, slots=True)
class Ago:
    """A time relative to the present: so many milliseconds ago."""

    millis: int


def _out_of_range(text: str) -> str:
    aliases = {"true": "fail", "false": "earliest"}
    word = text.strip().lower()
    return str(choice("fail", "earliest", "latest").parse(aliases.get(word, word)))


def _reset(text: str) -> str | int | Ago:
    stripped = text.strip()
    word = _RESETS.get(stripped.lower(), stripped.lower())
    if word in ("earliest", "latest"):
        return word
    if stripped.isascii() and stripped.isdecimal():
        return whole_number(stripped)
    if _INSTANT.fullmatch(stripped):
        try:
            instant = datetime.fromisoformat(stripped.upper())
            return _millis(instant)
        except (ValueError, OverflowError):
            msg = "is not a valid time"
            raise ValueError(msg) from None
    if _DATE.fullmatch(stripped):
        try:
            return _millis(datetime.fromisoformat(f"{stripped}T00:00:00+00:00"))
        except (ValueError, OverflowError):
            msg = "is not a valid date"
            raise ValueError(msg) from None
    try:
        return Ago(PERIOD.parse(stripped))
    except ValueError:
        msg = (
            "is none of smallest, largest, earliest, latest, a period such as 2d, "
            "a date such as 2022-08-09 (in UTC), a time such as "
            "2022-08-09T12:31:38.222Z, or milliseconds"
        )
        raise ValueError(msg) from None


def _millis(instant: datetime) -> int:
    # In integers: a float would be off by one for some milliseconds.
    millis = int(instant.replace(microsecond=0).timestamp()) * 1000
    if millis < 0:
        msg = "before 1970"
        raise ValueError(msg)
    return millis + instant.microsecond // 1000


def _offsets(text: str) -> str | dict[str, dict[int, int]]:
    """Parse ``earliest``, ``latest``, or Spark's JSON with -2 and -1 for these."""
    word = _RESETS.get(text.strip().lower(), text.strip().lower())
    if word in ("earliest", "latest"):
        return word
    try:
        return _by_partition(text, least=-2)
    except (ValueError, RecursionError):
        msg = 'is neither earliest, latest nor JSON such as {"topic": {"0": 23}}'
        raise ValueError(msg) from None


def _timestamps(text: str) -> dict[str, dict[int, int]]:
    try:
        return _by_partition(text, least=0)
    except (ValueError, RecursionError):
        msg = 'is not JSON such as {"topic": {"0": 1700000000000}}'
        raise ValueError(msg) from None


def _by_partition(text: str, least: int) -> dict[str, dict[int, int]]:
    checked: dict[str, dict[int, int]] = {}
    for topic, by_id in _by_topic(text).items():
        if not isinstance(by_id, dict):
            raise ValueError  # noqa: TRY004 - one complaint for every shape
        for key, number in by_id.items():
            if _ID.fullmatch(key) is None or int(key) > MAX_PARTITION_ID:
                raise ValueError
            if type(number) is not int or not least <= number < 2**63:
                raise ValueError
        checked[topic] = {int(key): number for key, number in by_id.items()}
    return checked


def _assignment(text: str) -> dict[str, tuple[int, ...]]:
    checked: dict[str, tuple[int, ...]] = {}
    try:
        for topic, ids in _by_topic(text).items():
            if not isinstance(ids, list) or not ids:
                raise ValueError
            for number in ids:
                if type(number) is not int or not 0 <= number <= MAX_PARTITION_ID:
                    raise ValueError
            checked[topic] = tuple(ids)
    except (ValueError, RecursionError):
        msg = 'is not JSON such as {"topic": [0, 1]}'
        raise ValueError(msg) from None
    return checked


def _by_topic(text: str) -> dict[str, Any]:
    value = json.loads(text, object_pairs_hook=_once)
    if not isinstance(value, dict) or not value or any(map(topic_name_problem, value)):
        raise ValueError
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError
    return found


def _topics(text: str) -> tuple[str, ...]:
    names = tuple(LIST.parse(text))
    for name in names:
        wrong = topic_name_problem(name)
        if wrong is not None:
            msg = f"names a topic that {wrong}"
            raise ValueError(msg)
    return names


def _pattern(text: str) -> str:
    if not text:
        msg = "matches no topic"
        raise ValueError(msg)
    # Imported here: it loads Arrow, which only patterns need.
    from streamfactory.wiring.options.patterns import check_pattern

    check_pattern(text)
    return text


def _schema(text: str) -> str:
    # Imported here: parsing loads Arrow, which only declared schemas need.
    from streamfactory.spi.ddl import parse_ddl

    parse_ddl(text)
    return text


def _instance(text: str) -> tuple[int, int]:
    match = re.fullmatch("([0-9]{1,9})/([0-9]{1,9})", text.strip())
    if match is None:
        msg = "is not of the form 0/3: index of this instance, from 0, and their number"
        raise ValueError(msg)
    mine, total = int(match[1]), int(match[2])
    if mine >= total:
        msg = "counts instances from 0: the last of 3 is 2/3"
        raise ValueError(msg)
    return mine, total


PLUGIN: Final = OptionType("string", str, {"type": "string"}, longest=500)
"""The name of a plug-in, or the path of a descriptor."""
OFFSETS: Final = OptionType("earliest, latest or JSON offsets", _offsets)
TIMESTAMPS: Final = OptionType("JSON timestamps", _timestamps)
ASSIGNMENT: Final = OptionType("JSON partitions", _assignment)
TOPICS: Final = OptionType("a,b,c", _topics, {"type": "string"})
PATTERN: Final = OptionType("regular expression", _pattern, longest=1000)
RESET: Final = OptionType("earliest, latest, period, time or milliseconds", _reset)
"""Pinot's offset criteria; the value is a string, `Ago`, or milliseconds since 1970."""
OUT_OF_RANGE: Final = OptionType("fail or earliest or latest", _out_of_range)
SCHEMA: Final = OptionType("Spark DDL", _schema)
GUARANTEE: Final = OptionType(
    "at-most-once or at-least-once or exactly-once", Guarantee.parse, longest=100
)
INSTANCE: Final = OptionType("k/n", _instance)
