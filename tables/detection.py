"""Describes what is at a location that has no table of the expected format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamfactory.spi import FormatRefused, TopicNotFound

if TYPE_CHECKING:
    from streamfactory.tables.places import TableFiles

_FORMATS: Final = {
    "delta": ("Delta", "_delta_log"),
    "hudi": ("Hudi", ".hoodie"),
    "iceberg": ("Iceberg", "metadata"),
}
"""Of each stream type: the name of the format, and the folder its tables have."""


def table_folder(kind: str) -> str:
    """The folder that every table of a stream type has, by which it is recognised."""
    return _FORMATS[kind][1]


def missing_table(
    files: TableFiles, kind: str, lacks: str
) -> TopicNotFound | FormatRefused:
    """The error for a location without a table of a format.

    Args:
        files: Of the location.
        kind: Stream type of the format.
        lacks: What is not there.

    Returns:
        `TopicNotFound`, or `FormatRefused` where there is a table of another format.
    """
    location = files.location
    what = f"there is no {_FORMATS[kind][0]} table at {location!r}: it "
    if not files.exists(""):
        return TopicNotFound(f"{what}does not exist")
    for other, (name, folder) in _FORMATS.items():
        if other != kind and files.exists(folder):
            what = f"the table at {location!r} is of {name}, not {_FORMATS[kind][0]}"
            return FormatRefused(what, remedy=f"set streamType={other}")
    return TopicNotFound(f"{what}has no {lacks}")
