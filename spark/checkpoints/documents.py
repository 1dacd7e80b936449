"""JSON files with a version, in checkpoint folders."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from streamfactory.spi import PositionRefused

if TYPE_CHECKING:
    from streamfactory.spark.checkpoints.places import Place


def read_document(
    folder: Place, name: str, newest: int, what: str, remedy: str | None = None
) -> dict[str, Any] | None:
    """Read a JSON object with a version; None where there is no such file (rule P2).

    Args:
        folder: The folder.
        name: Of the file.
        newest: The highest version that is read.
        what: What the file is, for errors.
        remedy: For a file that is corrupt.

    Raises:
        PositionRefused: permanent; it is corrupt, foreign or newer.
    """
    content = folder.read(name)
    if content is None:
        return None
    path = f"{folder.text}/{name}"
    try:
        body = json.loads(content)
    except (ValueError, RecursionError) as error:
        msg = f"{path} is not JSON"
        raise PositionRefused(msg, remedy=remedy) from error
    version = body.get("version") if isinstance(body, dict) else None
    if type(version) is not int:
        msg = f"{path} is not {what}"
        raise PositionRefused(msg, remedy=remedy)
    if version > newest:
        msg = f"{path} has version {version}, this reads {newest}"
        raise PositionRefused(msg, remedy="upgrade streamfactory")
    return dict(body)
