"""The catalogue of named streams: a folder of definitions, looked up by name.

A name is only compared with the names in the files; it never becomes part of a path.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streamfactory.spi import ConfigError, Problem, UnknownStream
from streamfactory.wiring.config.documents import SUFFIXES, read_document
from streamfactory.wiring.config.files import definitions_of
from streamfactory.wiring.config.profiles import ENVIRONMENT as PROFILE
from streamfactory.wiring.config.profiles import Profile
from streamfactory.wiring.core.nearest import nearest

if TYPE_CHECKING:
    from streamfactory.wiring.config.definition import StreamDefinition

ENVIRONMENT: Final = "STREAMFACTORY_STREAMS"
DEFAULT_FOLDER: Final = Path("configs/streams")


def active_profile() -> str | None:
    """The name of the profile of this process: STREAMFACTORY_PROFILE."""
    return os.environ.get(PROFILE) or None


def read_definitions(path: Path) -> list[StreamDefinition]:
    """Read the definitions of one file, in the order of the file, without a profile.

    Raises:
        ConfigError: config; see `definitions_of`.
    """
    return definitions_of(read_document(path))


@dataclass(slots=True)
class _Contents:
    """The definitions of a folder at one moment."""

    by_name: dict[str, list[StreamDefinition]] = field(default_factory=dict)
    by_stem: dict[str, list[StreamDefinition]] = field(default_factory=dict)
    broken: dict[Path, ConfigError] = field(default_factory=dict)


class Catalogue:
    """The streams of one folder. The files are read again on each call.

    Not so those of a `snapshot`, which commands over many streams use. Thread-safe.

    Args:
        folder: The folder of the files; by default STREAMFACTORY_STREAMS, then
            ``./configs/streams``. It need not exist: then there are no streams.
        named_by: What named the folder, for errors; empty if it is the default.
        settings: What can name another one, for errors.

    Where STREAMFACTORY_PROFILE names a `Profile`, each definition has its properties,
    and a profile that cannot be read is an error of each call.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        named_by: str = "",
        settings: str = ENVIRONMENT,
    ) -> None:
        named = os.environ.get(ENVIRONMENT)
        self.folder = folder or (Path(named) if named else DEFAULT_FOLDER)
        self._named_by = named_by or (ENVIRONMENT if named and folder is None else "")
        self._settings = settings
        self._reads_once = False
        self._lists_names = True
        self._contents: _Contents | None = None
        self._lock = threading.Lock()

    def snapshot(self, *, lists_names: bool = True) -> Catalogue:
        """Return the catalogue as it is at its first look-up: it is read once.

        Args:
            lists_names: Whether the error for an unknown name has the known ones, and
                the files that cannot be read. Not everybody may see these.
        """
        found = Catalogue(self.folder, named_by=self._named_by, settings=self._settings)
        found._reads_once = True
        found._lists_names = lists_names
        return found

    def names(self) -> list[str]:
        """Return all names, sorted, without those of files that cannot be read.

        Raises:
            ConfigError: config; the folder cannot be listed.
        """
        return sorted(self._read().by_name)

    def definitions(self, name: str) -> list[StreamDefinition]:
        """Return all definitions with a name; more than one is an error of `get`.

        Raises:
            ConfigError: config; the folder cannot be listed.
        """
        return list(self._read().by_name.get(name, ()))

    def broken(self) -> dict[Path, ConfigError]:
        """Return the files that cannot be read, each with the cause.

        Raises:
            ConfigError: config; the folder cannot be listed.
        """
        return self._read().broken

    def get(self, name: str) -> StreamDefinition:
        """Return the definition with a name, or the only one of the file with it.

        Raises:
            UnknownStream: config; lists the known names, a near match, and the files
                that could not be read.
            ConfigError: config; two files define the name, the file with that name is
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
                msg = f"{places[0]} defines several streams: {inside}"
                raise ConfigError(msg, stream=name, remedy="name one of them")
            msg = f"stream {name!r} is defined in {' and '.join(places)}"
            raise ConfigError(msg, remedy="rename one of them")
        for path, error in contents.broken.items():
            if path.stem == name:
                raise error
        raise self._unknown(name, contents)

    def find(self, name_or_path: str) -> list[StreamDefinition]:
        """Return the definitions of a file, if it exists; otherwise of a name.

        Raises:
            ConfigError: config; see `read_definitions` and `get`.
        """
        path = Path(name_or_path)
        if path.suffix.lower() in SUFFIXES and os.path.lexists(path):
            return self._of_file(path)
        return [self.get(name_or_path)]

    def one(self, name_or_path: str | os.PathLike[str]) -> StreamDefinition:
        """Return the only definition of a file, or that of a name.

        Args:
            name_or_path: Of `find`; a path that is no text is always that of a file.

        Raises:
            ConfigError: config; there is none, or a file holds several.
        """
        if isinstance(name_or_path, str):
            found = self.find(name_or_path)
        else:
            found = self._of_file(Path(name_or_path))
        if len(found) != 1:
            names = ", ".join(definition.name for definition in found)
            msg = f"{name_or_path} holds several streams: {names}"
            remedy = f"set {ENVIRONMENT} to its folder, and give one of the names"
            raise ConfigError(msg, remedy=remedy)
        return found[0]

    def _profile(self) -> Profile | None:
        name = active_profile()
        return None if name is None else Profile.load(name, self.folder)

    def _of_file(self, path: Path) -> list[StreamDefinition]:
        found, profile = read_definitions(path), self._profile()
        return found if profile is None else [profile.over(one) for one in found]

    def _read(self) -> _Contents:
        if not self._reads_once:
            return self._parsed()
        with self._lock:
            if self._contents is None:
                self._contents = self._parsed()
            return self._contents

    def _parsed(self) -> _Contents:
        contents, profile = _Contents(), self._profile()
        for document in [read_document(path) for path in self._files()]:
            path = document.path
            try:
                definitions = definitions_of(document)
            except ConfigError as error:
                # Not raised: a bad file must not prevent the use of streams in other
                # files.
                contents.broken[path] = error
                continue
            if profile is not None:
                definitions = [profile.over(one) for one in definitions]
            contents.by_stem.setdefault(path.stem, []).extend(definitions)
            for definition in definitions:
                contents.by_name.setdefault(definition.name, []).append(definition)
        if profile is not None:
            streams = [one for some in contents.by_name.values() for one in some]
            unknown = profile.unknown_tables(streams)
            if unknown is not None:
                contents.broken[profile.path] = unknown
        return contents

    def _files(self) -> list[Path]:
        try:
            listed = sorted(self.folder.iterdir())
        except FileNotFoundError:
            return []
        except OSError as error:
            msg = f"the folder {str(self.folder)!r} cannot be read: {error.strerror}"
            raise ConfigError(msg) from error
        # Files that begin with a dot are temporary files of editors and file systems.
        return [
            path
            for path in listed
            if path.suffix.lower() in SUFFIXES and not path.name.startswith(".")
        ]

    def _unknown(self, name: str, contents: _Contents) -> UnknownStream:
        if not self._lists_names:
            return UnknownStream(f"no stream is named {name!r}")
        names = sorted(contents.by_name)
        by = f" ({self._named_by})" if self._named_by else ""
        if names:
            known = f"known in {self.folder}{by} are {', '.join(names)}"
        elif self.folder.is_dir():
            known = f"the folder {self.folder}{by} defines no stream"
        else:
            # Whole: Spark's processes have other working folders than their user.
            known = f"the folder {self.folder.absolute()}{by} does not exist: "
            known += f"set {self._settings} to another"
        near = nearest(name, names)
        remedy = f"did you mean {near!r}?" if near else None
        if Path(name).suffix.lower() in SUFFIXES:
            remedy = "no file with that path exists either"
        problems = [
            Problem(
                str(path),
                "could not be read, so its streams are unknown",
                suggestion=f"to see why: streamfactory validate {path}",
            )
            for path in contents.broken
        ]
        msg = f"no stream is named {name!r}; {known}"
        return UnknownStream(msg, remedy=remedy, problems=problems)
