"""Options of ``file``."""

from __future__ import annotations

from typing import Final

from streamfactory.arrowlog import LOG_OPTIONS
from streamfactory.arrowlog.disk.options import (
    LOCATION,
    MODE_OPTIONS,
    SEGMENT_OPTIONS,
    STORAGE_OPTIONS,
    WRITING_OPTIONS,
)
from streamfactory.arrowlog.options import folder_name_problem
from streamfactory.backends.file.foreign_options import OPTIONS as FOREIGN_OPTIONS
from streamfactory.spi import Option, choice

LOG: Final = "log"
"""Value of ``format`` for topics, instead of files of other programs."""


OPTIONS: Final = (
    Option(
        "path",
        "Folder, or URL of an object store, that contains the topics. With a format "
        "other than log: the file, the folder of files, or the prefix of objects.",
        LOCATION,
        required=True,
        example="/var/lib/streams",
    ),
    Option(
        "topic.name",
        "Name of the topic; not used with a format other than log.",
        default="default",
        validator=folder_name_problem,
        example="clicks",
    ),
    Option(
        "format",
        "log: durable topics. file, stream: Arrow files of other programs, in the "
        "random-access or the stream format, read-only; auto: detect which of them. "
        "parquet: Parquet files of other programs, read-only.",
        choice(LOG, "file", "stream", "auto", "parquet"),
        default=LOG,
    ),
    *LOG_OPTIONS,
    *SEGMENT_OPTIONS,
    *WRITING_OPTIONS,
    *MODE_OPTIONS,
    *STORAGE_OPTIONS,
    *FOREIGN_OPTIONS,
)
