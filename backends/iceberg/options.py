"""Options of ``iceberg``."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from streamfactory.arrowlog.disk.options import LOCATION
from streamfactory.spi import LIST, Option
from streamfactory.tables import (
    PATH_OPTION,
    TABLE_OPTIONS,
    WRITE_OPTIONS,
    changes_option,
    partition_option,
)

_NAME: Final = re.compile(r"[^.\s]+(\.[^.\s]+)+")


def _table_problem(name: str) -> str | None:
    if _NAME.fullmatch(name):
        return None
    return "is not the name of a table with its namespace, such as shop.orders"


OPTIONS: Final = (
    Option(
        "table",
        "Name of the table in its catalog, with the namespace. Required to write.",
        validator=_table_problem,
        example="shop.orders",
    ),
    Option(
        "warehouse",
        "Folder, or URL of an object store, below which the catalog creates tables. A "
        "local folder is enough: without catalog and catalog.prop.uri the catalog is "
        "the SQLite database catalog.db in it.",
        LOCATION,
        example="lake",
    ),
    Option(
        "catalog",
        "Name of the catalog; its properties are catalog.prop.*, and those that "
        "pyiceberg finds in its own configuration.",
        default="default",
    ),
    replace(
        PATH_OPTION,
        doc="Folder, or URL of an object store, of a table that is read without a "
        "catalog. Its newest metadata is that with the highest number.",
        required=False,
    ),
    changes_option(
        "all: every change; a row of a data file that was rewritten is a delete and an "
        "insert. appends: only rows of commits that add rows; others are left out.",
    ),
    partition_option(
        "Partitions of a table that the first rows create: columns, or transforms of "
        "columns: year, month, day, hour, bucket[N] and truncate[N].",
        "day(at),bucket[16](id)",
    ),
    Option(
        "sort.by",
        "Columns by which rows of a table that the first rows create are sorted, each "
        "with asc (the default) or desc: the sort order of the table. Rows are sorted "
        "within row groups, also those of a table that exists and has such an order.",
        LIST,
        applies=frozenset({"write", "spark"}),
        example="city,at desc",
    ),
    *TABLE_OPTIONS,
    *WRITE_OPTIONS,
)
