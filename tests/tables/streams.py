"""Configurations of the streams of tables, for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def table_properties(kind: str, path: Path, **options: str) -> dict[str, str]:
    """A stream of a table in a folder.

    Args:
        kind: Stream type.
        path: The table's folder.
        options: Further properties; two underscores stand for a dot.
    """
    return {
        "streamType": kind,
        f"stream.{kind}.path": str(path),
        f"stream.{kind}.poll.interval.millis": "5",
    } | {key.replace("__", "."): text for key, text in options.items()}
