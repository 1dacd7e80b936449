"""Options that the streams of all table formats have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamfactory.arrowlog.disk.options import (
    LINKS_OPTION,
    LOCATION,
    STORAGE_OPTIONS,
)
from streamfactory.spi import BOOLEAN, LIST, PERIOD, SIZE, Option, choice

if TYPE_CHECKING:
    from collections.abc import Sequence

_READ: Final = frozenset({"read", "spark"})
_WRITE: Final = frozenset({"write", "spark"})

APPENDS: Final = "appends"
"""Value of the option ``changes``."""

START_REMEDY: Final = (
    "name one of these; startingOffsets=latest reads what is committed from now on"
)
"""Remedy for a ``start.commit`` that the table does not have."""


def changes_option(doc: str) -> Option:
    """The option ``changes`` of a format whose commits may rewrite rows.

    Args:
        doc: What ``all`` and ``appends`` give.
    """
    return Option("changes", doc, choice("all", APPENDS), default="all", applies=_READ)


PATH_OPTION: Final = Option(
    "path",
    "Folder, or URL of an object store, of the table.",
    LOCATION,
    required=True,
    example="s3://lake/flights",
)

TABLE_OPTIONS: Final = (
    Option(
        "topic.name",
        "Name of the table in positions and metadata columns; any name will do.",
        default="table",
        example="flights",
    ),
    Option(
        "start.commit",
        "Start with the changes of this commit, inclusive. Without it a new reader "
        "starts with a snapshot of the table, and continues with the changes behind "
        "it. A checkpoint, and the options of starts, apply first.",
        applies=_READ,
        example="12",
    ),
    Option(
        "change.columns",
        "Add the columns _change (insert, update_before, update_after, delete), "
        "_commit and _commit_time.",
        BOOLEAN,
        default="true",
        applies=_READ,
    ),
    Option(
        "poll.interval.millis",
        "Time between two looks for a new commit.",
        PERIOD,
        default="1s",
        minimum=1,
        applies=_READ,
    ),
    Option(
        "log.max.bytes",
        "Maximum size of one file of the table's log.",
        SIZE,
        default="256M",
        minimum=1024,
    ),
    LINKS_OPTION,
    *STORAGE_OPTIONS,
)


def partition_option(doc: str, example: str) -> Option:
    """The option ``partition.by`` of a format."""
    return Option("partition.by", doc, LIST, applies=_WRITE, example=example)


PROPERTIES: Final = "table.properties"
"""Key of the option that has the properties of a new table."""
_OURS: Final = "streamfactory."
"""Properties that are written by commits."""


def named(text: str) -> tuple[str, str]:
    """Name and value of ``name=value``."""
    name, _, value = text.partition("=")
    return name.strip(), value.strip()


def _properties_problem(texts: Sequence[str]) -> str | None:
    known = set[str]()
    for text in texts:
        name = named(text)[0]
        if "=" not in text or not name:
            return f"has {text[:80]!r}, which is not name=value"
        if name in known:
            return f"has {name[:80]!r} twice"
        if name.startswith(_OURS):
            return f"has {name[:80]!r}, which commits write"
        known.add(name)
    return None


PARTITIONS: Final = "partitions"
"""Value of the option ``overwrite``."""

WRITE_OPTIONS: Final = (
    Option(
        PROPERTIES,
        "Properties of a table that the first rows create, as name=value. Those that "
        "say how data files are written apply to tables that exist, too: see "
        "docs/tables.md.",
        LIST,
        validator=_properties_problem,
        applies=_WRITE,
        example="owner=shop,stage=raw",
    ),
    Option(
        "overwrite",
        "What an epoch replaces that replaces rows, as with Spark's mode overwrite. "
        "table: all rows. partitions: all rows of the partitions that its own rows "
        "have; an epoch without rows replaces none.",
        choice("table", PARTITIONS),
        default="table",
        applies=_WRITE,
    ),
    Option(
        "key.max.bytes",
        "Maximum bytes of the keys of an epoch that is written by key "
        "(producer.key.columns): they are held in memory.",
        SIZE,
        default="256M",
        minimum=1024,
        applies=_WRITE,
    ),
)
"""Options of the formats that are written."""
