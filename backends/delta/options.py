"""Options of ``delta``."""

from __future__ import annotations

from typing import Final

from streamfactory.tables import (
    PATH_OPTION,
    TABLE_OPTIONS,
    WRITE_OPTIONS,
    changes_option,
    partition_option,
)

OPTIONS: Final = (
    PATH_OPTION,
    changes_option(
        "all: every change; a commit that rewrites rows needs the change data feed of "
        "the table. appends: only rows of commits that add rows; commits that rewrite "
        "or delete are left out.",
    ),
    partition_option(
        "Partition columns of a table that the first rows create.", "city,day"
    ),
    *TABLE_OPTIONS,
    *WRITE_OPTIONS,
)
