"""Detects the files of pipelines; imports nothing that only pipelines need."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from streamfactory.spi import ConfigError, UnknownStream
from streamfactory.wiring.config.catalogue import Catalogue
from streamfactory.wiring.config.documents import Document, open_document, read_toml
from streamfactory.wiring.core.places import is_file, is_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

PIPELINES: Final = "pipelines"
"""The folder beside the catalogue's in which pipelines are found."""
TESTS: Final = ".test.toml"
"""How the file of a pipeline's tests ends, after the name of the pipeline's file."""


def pipeline_path(target: str) -> str:
    """The file of a pipeline that is named; other targets as they are.

    A name stands for ``NAME.toml`` in the folder `PIPELINES`, unless the working folder
    has a file or folder of that name.
    """
    path = Path(target)
    if (
        path.name != target
        or not target
        or path.suffix
        or is_file(path)
        or is_folder(path)
    ):
        return target
    found = Catalogue().folder.parent / PIPELINES / f"{target}.toml"
    return str(found) if is_pipeline(found) else target


def stream_or_pipeline(target: str, catalogue: Catalogue) -> str:
    """What a command that takes both is given: a name is a stream's where one has it.

    Other names stand for pipelines, as in `pipeline_path`.
    """
    path = pipeline_path(target)
    if path == target:
        return target
    try:
        catalogue.get(target)
    except UnknownStream:
        return path
    except ConfigError:
        pass  # which the look-up of the stream raises again
    return target


def pipeline_engine(path: Path, texts: Mapping[Path, str] | None = None) -> str:
    """The engine that a pipeline's file names, in lower case; empty by default.

    Empty for a file that cannot be read, too: the parser reports the reason.

    Args:
        path: The file.
        texts: Texts that are read instead of those of files.
    """
    try:
        text = (texts or {}).get(path)
        body = read_toml(open_document(path) if text is None else Document(path, text))
    except ConfigError:
        return ""
    return str(body.get("engine", "")).strip().lower()


def is_pipeline(path: Path) -> bool:
    """Whether a file defines a pipeline instead of streams."""
    if path.suffix.lower() != ".toml" or not is_file(path):
        return False
    try:
        body = read_toml(open_document(path))
    except ConfigError:
        return False
    return is_pipeline_body(body)


def is_pipeline_body(body: Mapping[str, object]) -> bool:
    """Whether the content of a TOML file is a pipeline's instead of a stream's."""
    return "properties" not in body and bool({"source", "sources", "sinks"} & set(body))
