"""Named streams: a folder of definitions, looked up by name.

A name is only ever compared with the names that files claim; no path is made of it.
"""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streamfactory.spi import ConfigError, Problem, UnknownStream
from streamfactory.wiring.config.files import SUFFIXES, read_definitions

if TYPE_CHECKING:
    from streamfactory.wiring.config.definition import StreamDefinition

ENVIRONMENT: Final = "STREAMFACTORY_STREAMS"
DEFAULT_FOLDER: Final = Path("configs/streams")


@dataclass(slots=True)
class _Contents:
    """What a folder holds at one moment."""

    by_name: dict[str, list[StreamDefinition]] = field(default_factory=dict)
    by_stem: dict[str, list[StreamDefinition]] = field(default_factory=dict)
    broken: dict[Path, ConfigError] = field(default_factory=dict)


class Catalogue:
    """The streams of one folder. Read anew each time it is asked.

    Args:
        folder: Where the files are; else what STREAMFACTORY_STREAMS says; else
            ``./configs/streams``. It need not exist: then there are no streams.
    """

    def __init__(self, folder: Path | None = None) -> None:
        named = os.environ.get(ENVIRONMENT)
        self.folder = folder or (Path(named) if named else DEFAULT_FOLDER)

    def names(self) -> list[str]:
        """The names that can be asked for, sorted; files that are broken have none.

        Raises:
            ConfigError: config; the folder cannot be listed.
        """
        return sorted(self._read().by_name)

    def broken(self) -> dict[Path, ConfigError]:
        """The files that cannot be read, each with the reason.

        Raises:
            ConfigError: config; the folder cannot be listed.
        """
        return self._read().broken

    def get(self, name: str) -> StreamDefinition:
        """The definition that claims a name, or that is alone in the file so named.

        Raises:
            UnknownStream: config; lists the known names, a near match, and the files
                that could not be read.
            ConfigError: config; two files claim the name, the file so named is
                broken, or the folder cannot be listed.
        """
        contents = self._read()
        found = contents.by_name.get(name) or contents.by_stem.get(name, [])
        if len(found) == 1:
            return found[0]
        if found:
            places = sorted({definition.origin for definition in found})
            if len(places) == 1:
                inside = ", ".join(definition.name for definition in found)
                msg = f"{places[0]} holds several streams: {inside}"
                raise ConfigError(msg, stream=name, remedy="name one of them")
            msg = f"the name {name!r} is claimed by {' and '.join(places)}"
            raise ConfigError(msg, remedy="rename one of them")
        for path, error in contents.broken.items():
            if path.stem == name:
                raise error
        raise self._unknown(name, contents)

    def find(self, name_or_path: str) -> list[StreamDefinition]:
        """The definitions of a file, where there is such a file, else of a name.

        Raises:
            ConfigError: config; as `read_definitions` and `get`.
        """
        path = Path(name_or_path)
        if path.suffix.lower() in SUFFIXES and os.path.lexists(path):
            return read_definitions(path)
        return [self.get(name_or_path)]

    def _read(self) -> _Contents:
        contents = _Contents()
        for path in self._files():
            try:
                definitions = read_definitions(path)
            except ConfigError as error:
                # Kept, so that one bad file hinders nobody who asks for another.
                contents.broken[path] = error
                continue
            contents.by_stem.setdefault(path.stem, []).extend(definitions)
            for definition in definitions:
                contents.by_name.setdefault(definition.name, []).append(definition)
        return contents

    def _files(self) -> list[Path]:
        try:
            listed = sorted(self.folder.iterdir())
        except FileNotFoundError:
            return []
        except OSError as error:
            msg = f"the folder {str(self.folder)!r} cannot be read: {error.strerror}"
            raise ConfigError(msg) from error
        # A dot begins what editors and file systems leave beside the real files.
        return [
            path
            for path in listed
            if path.suffix.lower() in SUFFIXES and not path.name.startswith(".")
        ]

    def _unknown(self, name: str, contents: _Contents) -> UnknownStream:
        names = sorted(contents.by_name)
        if names:
            known = f"known in {self.folder} are {', '.join(names)}"
        elif self.folder.is_dir():
            known = f"the folder {self.folder} defines none"
        else:
            known = f"there is no folder {self.folder}: {ENVIRONMENT} may name one"
        near = difflib.get_close_matches(name, names, n=1)
        remedy = f"did you mean {near[0]!r}?" if near else None
        if Path(name).suffix.lower() in SUFFIXES:
            remedy = "there is no such file either"
        problems = [
            Problem(
                str(path),
                "could not be read, so the streams in it are not known",
                suggestion=f"to see why: streamfactory validate {path}",
            )
            for path in contents.broken
        ]
        msg = f"no stream is named {name!r}; {known}"
        return UnknownStream(msg, remedy=remedy, problems=problems)
