"""Formats and options of files of other programs, and what is claimed of them."""

from __future__ import annotations

from typing import Final

from streamfactory.arrowlog.disk.options import LINKS_OPTION
from streamfactory.spi import BOOLEAN, PATH, SIZE, Claims, Option, choice

STREAM: Final = "stream"
RANDOM: Final = "file"
AUTO: Final = "auto"
PARQUET: Final = "parquet"
FORMATS: Final = (STREAM, RANDOM, AUTO, PARQUET)
"""Values of ``format`` for files of other programs."""

_READ: Final = frozenset({"read", "spark"})

CLAIMS: Final = Claims(replayable=True, durable=True, shared=True)
"""Of files of other programs, whatever their options."""

OPTIONS: Final = (
    Option(
        "state.folder",
        "Folder for the manifest of a folder of files, if that folder is read-only.",
        PATH,
        applies=_READ,
    ),
    Option(
        "order",
        "Order of files that are found at the same time: by name, or by modification "
        "time.",
        choice("name", "time"),
        default="name",
        applies=_READ,
    ),
    Option(
        "names",
        "Shell pattern of the files of a folder that belong to the stream.",
        default="*",
        applies=_READ,
        example="part-*.arrow",
    ),
    Option(
        "message.max.bytes",
        "Maximum size of an Arrow message, also when decompressed; of a row group of "
        "a Parquet file when decompressed.",
        SIZE,
        default="4G",
        minimum=1024,
        applies=_READ,
    ),
    LINKS_OPTION,
    Option(
        "memory.map",
        "Memory-map complete files; false copies, for files that may be truncated.",
        BOOLEAN,
        default="true",
        applies=_READ,
    ),
    Option(
        "check.values",
        "Validate all values that are read: offsets, indices, run ends, UTF-8, times "
        "and null counts. Set false only if you trust every program that writes the "
        "files.",
        BOOLEAN,
        default="true",
    ),
)
