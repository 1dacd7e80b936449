"""A profile: a file that replaces properties of the catalogue's streams, by place.

``configs/profiles/prod.toml`` beside ``configs/streams`` says what differs there::

    [types.kafka]
    "stream.kafka.broker.list" = "kafka.example:9092"

    [streams.clicks]
    "stream.file.path" = "/data/topics"

A property of a stream comes before one of its type. Relative paths start where those of
the streams do. Definitions that a program passes as a map have no profile.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, final

from streamfactory.spi import ConfigError, Problem
from streamfactory.spi.hooks import BACKENDS
from streamfactory.wiring.config.definition import Property
from streamfactory.wiring.config.documents import (
    clip_key,
    open_document,
    read_toml,
    refusal,
)
from streamfactory.wiring.config.files import flat, origin_of, property_problems
from streamfactory.wiring.core.anchoring import project_of
from streamfactory.wiring.core.nearest import nearest
from streamfactory.wiring.core.shown import printable
from streamfactory.wiring.options.texts import pointer_of
from streamfactory.wiring.options.vocabulary import FRAMEWORK_OPTIONS
from streamfactory.wiring.plugins.manager import default_manager

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from streamfactory.wiring.config.definition import StreamDefinition
    from streamfactory.wiring.config.documents import Document

ENVIRONMENT: Final = "STREAMFACTORY_PROFILE"
FOLDER: Final = "profiles"
_NAME: Final = re.compile("[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_KINDS: Final = {"types": "type of streams", "streams": "stream of the catalogue"}
_TABLES: Final = tuple(_KINDS)
_TYPE: Final = frozenset(
    word.lower() for word in FRAMEWORK_OPTIONS["streamType"].spellings
)

Properties = tuple[Property, ...]


@final
@dataclass(frozen=True, slots=True)
class Profile:
    """What replaces properties of streams."""

    path: Path
    types: Mapping[str, Properties]
    """By stream type, in lower case."""
    streams: Mapping[str, Properties]
    """By the name of the stream."""
    places: Mapping[tuple[str, str], str]
    """Where each table is, by ``types`` or ``streams`` and its key: path and line."""

    @classmethod
    def load(cls, name: str, streams: Path) -> Profile:
        """Read a profile.

        Args:
            name: Of its file, without the suffix.
            streams: The folder of the catalogue; that of the profiles is beside it.

        Raises:
            ConfigError: config; there is no such profile, or with all that is wrong
                in its file.
        """
        folder, project = streams.parent / FOLDER, project_of(streams)
        path = folder / f"{name}.toml"
        if _NAME.fullmatch(name) is None or not os.path.lexists(path):
            raise _unknown(name, streams)
        document = open_document(path)
        body = read_toml(document)
        problems = [*document.problems, *_misplaced(body, document)]
        found: dict[str, dict[str, Properties]] = {table: {} for table in _TABLES}
        places: dict[tuple[str, str], str] = {}
        for table, written, value in _entries(body):
            pointer = f"/{table}{pointer_of(written)}"
            key = written.lower() if table == "types" else written
            place = origin_of(document, pointer)
            if key in found[table]:
                what = f"is defined twice, also in {places[table, key]}"
                problems.append(Problem(clip_key(f"{table}.{written}"), what, place))
            places[table, key] = place
            values = list(flat(document, value, pointer))
            problems += [one for one in values if isinstance(one, Problem)]
            properties = tuple(
                replace(one, folder=project)
                for one in values
                if isinstance(one, Property)
            )
            problems += property_problems(properties)
            found[table][key] = properties
        if problems:
            raise refusal(str(path), problems)
        return cls(path, found["types"], found["streams"], places)

    def over(self, definition: StreamDefinition) -> StreamDefinition:
        """Return a definition with the properties of the profile before its own."""
        own = self.streams.get(definition.name, ())
        kind = _type_of((*definition.properties, *own))
        typed = definition.with_properties(self.types.get(kind, ()))
        return typed.with_properties(own)

    def unknown_tables(
        self, definitions: Collection[StreamDefinition]
    ) -> ConfigError | None:
        """Return an error that names the tables which have no effect on any stream.

        Args:
            definitions: All of the catalogue. A type that is installed is no mistake,
                though none of them has it.
        """
        names = {one.name for one in definitions}
        types = {_type_of(one.properties) for one in definitions}
        if not types >= self.types.keys():
            types |= set(default_manager().names(BACKENDS))
        known = {"types": types, "streams": names}
        problems = []
        for (table, key), place in self.places.items():
            if key not in known[table]:
                near = nearest(key, known[table])
                hint = f"did you mean {near}?" if near else None
                what = f"is no {_KINDS[table]}"
                problems.append(Problem(clip_key(f"{table}.{key}"), what, place, hint))
        return refusal(str(self.path), problems) if problems else None


def profile_names(streams: Path) -> list[str]:
    """The names of the profiles beside a catalogue's folder, sorted. Reads none."""
    try:
        listed = sorted((streams.parent / FOLDER).iterdir())
    except OSError:
        return []
    return [
        path.stem
        for path in listed
        if path.suffix == ".toml" and _NAME.fullmatch(path.stem) is not None
    ]


def _unknown(name: str, streams: Path) -> ConfigError:
    folder, known = streams.parent / FOLDER, profile_names(streams)
    msg = f"no profile is named {printable(name[:80])!r}; "
    if known:
        near = nearest(name, known)
        remedy = f"did you mean {near!r}?" if near else None
        msg += f"known in {folder} are {', '.join(known)}"
        return ConfigError(msg, remedy=remedy)
    msg += f"the folder {folder.absolute()} has no profile"
    return ConfigError(msg, remedy=f"create one, or unset {ENVIRONMENT}")


def _entries(
    body: Mapping[str, object],
) -> Iterator[tuple[str, str, Mapping[str, object]]]:
    for table in _TABLES:
        inner = body.get(table)
        if isinstance(inner, Mapping):
            for key, value in inner.items():
                if isinstance(value, Mapping):
                    yield table, key, value


def _misplaced(body: Mapping[str, object], document: Document) -> Iterator[Problem]:
    """What is neither a table of a type nor one of a stream."""
    for table, inner in body.items():
        place = pointer_of(table)
        if table not in _TABLES:
            near = nearest(table, _TABLES)
            hint = f"did you mean {near}?" if near else "write [streams.NAME]"
            what = "is not a table of a profile"
            yield Problem(clip_key(table), what, origin_of(document, place), hint)
        elif not isinstance(inner, Mapping):
            what, hint = "is no table", f"write [{table}.NAME]"
            yield Problem(table, what, origin_of(document, place), hint)
        else:
            for key, value in inner.items():
                if not isinstance(value, Mapping):
                    where = origin_of(document, place + pointer_of(key))
                    what = "is a value, and no table of properties"
                    hint = f"write [{table}.NAME] above it"
                    yield Problem(clip_key(f"{table}.{key}"), what, where, hint)


def _type_of(properties: Properties) -> str:
    """The stream type that definitions of the same type have; the last one wins."""
    words = [prop.text for prop in properties if prop.key.lower() in _TYPE]
    return words[-1].strip().lower() if words else ""
