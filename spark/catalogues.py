"""Where Spark finds the definitions of named streams, and what their paths start from.

Spark creates the source in processes of its own. They see neither the configuration of
the session nor the working folder of the program: `register` sends both with the class.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streamfactory.wiring.config.catalogue import (
    DEFAULT_FOLDER,
    ENVIRONMENT,
    Catalogue,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTION: Final = "streams"
"""The option of readers and writers that names the folder of the catalogue."""
CONF: Final = "spark.streamfactory.streams"
"""The configuration of a session that names it."""
_SETTINGS: Final = f"the option `{OPTION}`, {CONF} or {ENVIRONMENT}"


@dataclass(frozen=True, slots=True)
class Home:
    """Where a program looks for streams; empty where it did not register the source.

    Args:
        folder: Working folder of the program: relative paths start there.
        streams: Folder of the catalogue, by the configuration of the session.
    """

    folder: str = ""
    streams: str | None = None

    @classmethod
    def of(cls, session: SparkSession) -> Home:
        """That of the program that calls this."""
        return cls(str(Path.cwd()), session.conf.get(CONF, None))

    def catalogue(self, given: str | None = None) -> Catalogue:
        """The catalogue: by an option, the session, the environment, or its folder.

        Args:
            given: The option.
        """
        named = {f"option {OPTION}": given, CONF: self.streams}
        for by, text in named.items():
            if text:
                folder = Path(self.folder, Path(text).expanduser())
                return _catalogue(folder, by)
        if text := os.environ.get(ENVIRONMENT):
            return _catalogue(Path(text), ENVIRONMENT)
        # A Spark on another machine has no such folder, but may have one of its own.
        beside = Path(self.folder, DEFAULT_FOLDER)
        return _catalogue(beside if beside.is_dir() else DEFAULT_FOLDER, "")


def _catalogue(folder: Path, named_by: str) -> Catalogue:
    return Catalogue(folder.absolute(), named_by=named_by, settings=_SETTINGS)
