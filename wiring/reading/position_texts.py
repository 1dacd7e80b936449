"""Positions as people write them: offsets, times, periods, earliest and latest."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from streamfactory.spi import Position, StreamError
from streamfactory.wiring.options.types import RESET, Ago

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.wiring.reading.position_arguments import Mark, Marks
    from streamfactory.wiring.reading.starts import Start

_PAIR: Final = re.compile(r"(0|[1-9][0-9]{0,9})=(.+)", re.DOTALL)
_OFFSET: Final = re.compile(r"0|[1-9][0-9]{0,18}")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def parse_start(text: str) -> Start:
    """Read earliest, latest, a time, a period before now, or a position.

    Raises:
        ValueError: It is none of these; the text follows the value in a sentence.
        PositionRefused: permanent; the position is malformed.
    """
    if text.lstrip().startswith("{"):
        return _position(text)
    found = RESET.parse(text)
    if isinstance(found, Ago):
        return datetime.now(UTC) - timedelta(milliseconds=found.millis)
    if isinstance(found, int):
        return _EPOCH + timedelta(milliseconds=found)
    return str(found)


def parse_marks(texts: Sequence[str]) -> Marks:
    """Read one place for all partitions, or ``PARTITION=PLACE`` for each.

    Raises:
        ValueError: It is not in this form; the text is a sentence.
        PositionRefused: permanent; a position is malformed.
    """
    pairs = [match for match in map(_PAIR.fullmatch, texts) if match is not None]
    if not pairs and len(texts) == 1:
        return _mark(texts[0])
    if len(pairs) < len(texts) or not pairs:
        msg = "wanted one for all partitions, or PARTITION= in front of each"
        raise ValueError(msg)
    found: dict[int, Mark] = {}
    for pair in pairs:
        number = int(pair[1])
        if number in found:
            msg = f"partition {number} is given twice"
            raise ValueError(msg)
        found[number] = _mark(pair[2])
    return found


def _mark(text: str) -> Mark:
    stripped = text.strip()
    if _OFFSET.fullmatch(stripped):
        return int(stripped)
    try:
        return parse_start(stripped)
    except ValueError as error:
        if isinstance(error, StreamError):
            raise
        msg = (
            f"{text!r} is no offset, earliest or latest, time such as "
            "2022-08-09T12:31:38Z, period before now such as 2d, or position"
        )
        raise ValueError(msg) from error


def _position(text: str) -> Position:
    """A position as commands print it: with its envelope, or the offsets alone."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        body = {"version": 1}  # refused by the parser of positions, with its message
    if isinstance(body, dict) and "version" not in body:
        text = json.dumps({"version": 1, "offsets": body})
    return Position.from_json(text)
