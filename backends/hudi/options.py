"""Options of ``hudi``."""

from __future__ import annotations

from typing import Final

from streamfactory.spi import BOOLEAN, Option
from streamfactory.tables import PATH_OPTION, TABLE_OPTIONS

OPTIONS: Final = (
    PATH_OPTION,
    Option(
        "meta.columns",
        "Keep Hudi's columns _hoodie_commit_time, _hoodie_commit_seqno, "
        "_hoodie_record_key and _hoodie_partition_path.",
        BOOLEAN,
        default="false",
        applies=frozenset({"read", "spark"}),
    ),
    *TABLE_OPTIONS,
)
