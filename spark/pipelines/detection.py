"""Detects the files of pipelines; imports nothing that only pipelines need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfactory.spi import ConfigError
from streamfactory.wiring.config.documents import open_document, read_toml
from streamfactory.wiring.core.places import is_file

if TYPE_CHECKING:
    from pathlib import Path


def is_pipeline(path: Path) -> bool:
    """Whether a file defines a pipeline instead of streams."""
    if path.suffix.lower() != ".toml" or not is_file(path):
        return False
    try:
        body = read_toml(open_document(path))
    except ConfigError:
        return False
    return "properties" not in body and bool({"source", "sources", "sinks"} & set(body))
