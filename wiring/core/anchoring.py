"""Relative paths of definitions, made absolute by the folder of their project.

The processes of one job differ in their working folder: those of Spark most of all.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from streamfactory.spi.references import has_reference, with_folder

CONFIGS: Final = "configs"
"""A folder of definitions in a folder of this name belongs to the project around it."""
_ABSOLUTE: Final = re.compile(r"/|~|[A-Za-z][A-Za-z0-9+.-]*://")


def project_of(folder: Path) -> str:
    """The folder to which relative paths of the definitions in a folder are relative.

    Of ``configs/streams`` it is the folder that holds ``configs``; else the folder of
    the definitions itself.
    """
    whole = folder.absolute()
    inside = whole.parent.name == CONFIGS
    return str(whole.parent.parent if inside else whole)


def anchored(text: str, folder: str, *, path: bool, always: bool) -> str:
    """A value whose relative paths are absolute: its own, and those of references.

    Args:
        text: The value.
        folder: What they are relative to; empty: nothing is changed.
        path: Whether the value is a path.
        always: Also if they are relative to the working folder of this process: others
            will read them.
    """
    if not folder or not (path or "${file:" in text):
        return text
    if not always and folder == str(Path.cwd()):
        return text
    if has_reference(text):
        return with_folder(text, folder)
    return within(folder, text) if path else text


def within(folder: str, path: str) -> str:
    """A path or URL, absolute.

    Args:
        folder: What a relative path is relative to; empty: nothing is changed.
        path: The path.
    """
    if not folder or not path.strip() or _ABSOLUTE.match(path):
        return path
    return str(Path(folder, path))
