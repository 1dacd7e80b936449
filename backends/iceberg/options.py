"""Options of ``iceberg``."""

from __future__ import annotations

from typing import Final

from streamfactory.tables import PATH_OPTION, TABLE_OPTIONS, changes_option

OPTIONS: Final = (
    PATH_OPTION,
    changes_option(
        "all: every change; a row of a data file that was rewritten is a delete and an "
        "insert. appends: only rows of commits that add rows; others are left out.",
    ),
    *TABLE_OPTIONS,
)
