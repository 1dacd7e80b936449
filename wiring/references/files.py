"""The scheme ``file``: the text of files below the folders that the user allows.

A definition may come from somebody else: it must not read any file of the machine.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from streamfactory.spi import ConfigError
from streamfactory.spi.files import read_file
from streamfactory.spi.hooks import ReferenceScheme, ResolvedReference, hookimpl
from streamfactory.spi.references import FOLDERS, MAX_RESOLVED

_RUN_SECRETS: Final = "/run/secrets"


def look_up(path: str, _seconds: float) -> ResolvedReference:
    """Return the text of a file of 1 MiB at most, without the line ends at its end."""
    try:
        text = _read(path).decode("utf-8")
    except (OSError, ValueError) as error:  # ValueError: bad UTF-8, a null character
        if isinstance(error, ConfigError):
            raise
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigError(str(reason)) from None
    return ResolvedReference(text.rstrip("\r\n"))


def _read(path: str) -> bytes:
    found = Path(os.path.realpath(path))
    if not any(map(found.is_relative_to, _folders())):
        default = f"by default {_RUN_SECRETS} and the working directory"
        msg = f"the file is in no folder of {FOLDERS}, {default}"
        raise ConfigError(msg)
    # Links were followed above: one that was created since is refused.
    return read_file(found, MAX_RESOLVED, links=False)


def _folders() -> list[Path]:
    """The folders whose files can be read."""
    given = os.environ.get(FOLDERS)
    if given is None:
        # The root is the working directory of many services: it allows nothing.
        here = Path.cwd()
        allowed = [Path(_RUN_SECRETS), *([here] if here.parent != here else [])]
    else:
        allowed = [Path(folder) for folder in given.split(os.pathsep) if folder]
    return [folder.resolve() for folder in allowed]


@hookimpl
def streamfactory_reference() -> ReferenceScheme:
    """Describe the scheme."""
    return ReferenceScheme(
        name="file",
        doc="The text of a file below /run/secrets, the working directory, or the "
        f"folders of {FOLDERS}.",
        spi_level=1,
        example="${file:PATH}",
        lookup=look_up,
    )
