"""Instants of a Hudi table's timeline: their times, and the ordinals of commits."""

from __future__ import annotations

import io
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import fastavro

from streamfactory.spi import FormatRefused
from streamfactory.tables import check_avro_file, parse_json

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER: Final = ".hoodie"
ACTIONS: Final = ("commit", "deltacommit", "replacecommit")
"""Of instants that may change rows."""
TIME: Final = r"(\d{14}|\d{17})"
_EPOCH: Final = datetime(2016, 1, 1, tzinfo=UTC)
_SLOT: Final = timedelta(milliseconds=512)
"""Two commits of a table seldom complete within one of these."""


class Archived(NamedTuple):
    """Where the archived timeline has an instant."""

    path: str
    block: int
    """First byte of its block; 0 in a Parquet file."""
    row: int
    """Its number in the block."""


@dataclass(frozen=True, slots=True)
class Instant:
    """A completed commit, compaction, clustering or replacement."""

    time: str
    """When it was requested: in the names of its files, and what users call it."""
    completed: str
    """When it was completed; when it was requested where the format does not state
    that (table versions before 8)."""
    action: str
    name: str
    """Of its file; of an archived instant, a name that no other has."""
    archived: Archived | None = None
    """None while it is in the active part of the timeline."""

    @property
    def at(self) -> datetime:
        """`completed` as a time."""
        return parse_time(self.completed)


@lru_cache(maxsize=16384)
def parse_time(text: str) -> datetime:
    """The time of an instant.

    Raises:
        FormatRefused: permanent; it is none.
    """
    try:
        whole = datetime.strptime(text[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    except ValueError as error:
        what = f"the timeline of the table has an instant {text!r}, which is no time"
        raise FormatRefused(what) from error
    return whole + timedelta(milliseconds=int(text[14:] or 0))


def ordinals(instants: list[Instant]) -> list[int]:
    """The ordinal of each instant: its time, in slots since 2016.

    An instant that completes in the slot of the one before takes the next slot.
    """
    found: list[int] = []
    for instant in instants:
        slot = (instant.at - _EPOCH) // _SLOT
        found.append(max(slot, found[-1] + 1) if found else slot)
    return found


def parse_metadata(instant: str, content: bytes, most: int) -> Mapping[str, Any]:
    """What an instant states about itself: an Avro file, or JSON.

    Args:
        instant: Its time, for the error.
        content: Of its file.
        most: Bytes that it may have, inflated.

    Raises:
        FormatRefused: permanent; it is damaged, or has more.
    """
    try:
        found: Any
        if content.startswith(b"Obj\x01"):
            check_avro_file(f"instant {instant}", content, most)
            found = next(iter(fastavro.reader(io.BytesIO(content))))
        else:
            found = parse_json(content) if content else {}
        check_record(found)
    except FormatRefused:
        raise
    except Exception as error:  # whatever damaged Avro does to its reader
        what = f"instant {instant} of the timeline is damaged: {error}"
        raise FormatRefused(what[:300]) from error
    return found  # type: ignore[no-any-return]


def check_record(found: object) -> None:
    """Refuse what is no record.

    Raises:
        TypeError: It is none.
    """
    if not isinstance(found, dict):
        what = "it is no record"
        raise TypeError(what)
