"""Proposes the definition of a stream from what is at a place.

Used by ``streamfactory discover`` and by the editor of the pages. Nothing is written,
and nothing is consumed.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING, Final

from streamfactory.spi import (
    ConfigError,
    FormatRefused,
    MisuseError,
    Role,
    SchemaUnknown,
    StreamError,
    Unsupported,
    envelope_schema,
)
from streamfactory.spi.ddl import to_ddl
from streamfactory.spi.hooks import BACKENDS, Yields, roles_of
from streamfactory.transfer.inputs import open_inputs
from streamfactory.transfer.recognition import FILES, FLIGHT, recognise
from streamfactory.wiring.config.definition import Property, StreamDefinition
from streamfactory.wiring.core.anchoring import within
from streamfactory.wiring.core.bounded import bounded
from streamfactory.wiring.core.shown import masked
from streamfactory.wiring.options.shared import stream_options
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.reading.opened import opened_source, refuse_transport
from streamfactory.wiring.reading.raw_messages import infer_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from streamfactory.spi import Backend, Option
    from streamfactory.transfer.recognition import Recognised

_CLIENT: Final = "streamfactory-discover"
"""Client id in the logs of servers."""
SECONDS: Final = 30.0
"""For all of a discovery."""
MOST_ROWS: Final = 5
"""Of files that are to be published, which are shown."""
_SAMPLE: Final = 100
"""Messages that a schema is inferred from."""
_TOPIC: Final = "topic.name"
_DECODERS: Final = ("decoder.", "key.decoder.")
_FOLDER: Final = "data"
"""Of the topic of files that are published, as `init` has it."""
_TURN: Final = 5.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where a stream is looked for."""

    name: str
    """Of the stream to propose."""
    text: str = ""
    """A path, a URL, or the address of a server."""
    kind: str = ""
    """The stream type; recognised if empty."""
    topic: str = ""
    """Chosen of those of the place, if there are several."""
    folder: str = ""
    """What a relative path is relative to; empty: the working folder."""
    like: StreamDefinition | None = None
    """A stream of the same server, in place of `text`: its connection is used."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """The definition of a stream that is not saved."""

    definition: StreamDefinition
    topics: tuple[str, ...] = ()
    """Those of the place, one of which has to be chosen first."""
    notes: tuple[str, ...] = ()
    rows: pa.RecordBatch | None = None
    """The first rows of files that are to be published; None: the stream has them."""


def discover(place: Place) -> Proposal:
    """Propose the definition of a stream from what is at a place.

    Waits for at most `SECONDS`.

    Raises:
        MisuseError: misuse; the place is missing, or its type cannot be recognised.
        ConfigError: config; the place has nothing that can be read.
        StreamTimeout: transient; no answer in time.
        StreamError: The server, the table or a file cannot be read.
    """
    return bounded("discover", SECONDS, lambda: _discover(place))


def topics_of(definition: StreamDefinition, kind: str) -> list[str]:
    """The topics that the server or folder of a stream has.

    Args:
        definition: The stream; its own topic need not be set.
        kind: Its type.

    Raises:
        Unsupported: misuse; the type cannot list topics, or can be read once only.
        StreamError: The stream cannot be reached, or its configuration is invalid.
    """
    key = f"stream.{kind}.{_TOPIC}"
    if key not in {prop.key.lower() for prop in definition.properties}:
        given = Property(key, "topics", "argument")  # any: all of them are listed
        definition = definition.with_properties([given])
    definition = _readable(definition, kind)
    with opened_source(definition, client_id=_CLIENT) as source:
        refuse_transport(source)
        found: list[str] = masked(source.metadata.list_topics(), source.config.mask)
        return found


def place_option(backend: Backend) -> Option | None:
    """The option that says where the streams of a type are: its place.

    That is the first one that the type requires, beside the topic, or else ``path``.
    None for types of this process, and of transports that store nothing.
    """
    options = stream_options(backend)
    required = [one for one in options.values() if one.required and one.key != _TOPIC]
    return required[0] if required else options.get("path")


def types_with_places() -> list[str]:
    """The installed stream types that can be begun at a place, sorted."""
    manager, found = default_manager(), []
    for name in manager.names(BACKENDS):
        try:
            backend = manager.backend(name)
        except StreamError:
            continue  # `list` shows why it cannot be used
        if place_option(backend) is not None and Role.READ in roles_of(backend):
            found.append(name)
    return found


def _discover(place: Place) -> Proposal:
    if place.like is not None:
        kind, definition = _connection(place.like, place.name)
        notes = list[str]()
    else:
        if not place.text:
            msg = "no place is given"
            raise MisuseError(msg, remedy="give a path, a URL, or HOST:PORT")
        found = recognise(within(place.folder, place.text), place.kind)
        notes, kind = [*found.notes], found.kind
        if found.inputs:
            return _published(place, found)
        definition = _located(place, found).in_folder(place.folder)
    try:
        return _completed(place, kind, definition, notes)
    except FormatRefused:
        if kind != FLIGHT:
            raise
        return _plain(place, definition, notes)


def _completed(
    place: Place, kind: str, definition: StreamDefinition, notes: list[str]
) -> Proposal:
    """The definition with a topic and a decoder, where it needs them."""
    topics = [place.topic] if place.topic else _topics(definition, kind)
    if len(topics) > 1:
        return Proposal(definition, tuple(topics), tuple(notes))
    if topics:
        definition = _with(definition, kind, {_TOPIC: topics[0]})
    definition, how = _decoded(definition, kind)
    return Proposal(definition, notes=(*notes, *how))


def _plain(place: Place, definition: StreamDefinition, notes: list[str]) -> Proposal:
    """A stream of a Flight server of others: it lists no topics, and is read once."""
    options = {"protocol": "plain", _TOPIC: place.topic or place.name}
    note = "the server is not of streamfactory: check topic.name, which is the path"
    return Proposal(_with(definition, FLIGHT, options), notes=(*notes, note))


def _connection(like: StreamDefinition, name: str) -> tuple[str, StreamDefinition]:
    """The type of a stream, and the part of its definition that says where it is."""
    kept, kind = [], ""
    for one in like.properties:
        key = one.key.lower()
        if key in ("streamtype", "stream.type"):
            kind = one.text.strip().lower()
            kept.append(one)
        elif key.startswith("stream."):
            rest = key.split(".", 2)[-1]
            if rest != _TOPIC and not rest.startswith(_DECODERS):
                kept.append(one)
    return kind, StreamDefinition(name, tuple(kept))


def _located(place: Place, found: Recognised) -> StreamDefinition:
    option = place_option(default_manager().backend(found.kind))
    if option is None:
        msg = f"a stream of type {found.kind!r} has no place"
        raise MisuseError(msg, remedy="begin it in the form")
    definition = StreamDefinition.of(place.name, {"streamType": found.kind})
    return _with(definition, found.kind, {option.key: place.text, **found.options})


def _with(
    definition: StreamDefinition, kind: str, options: dict[str, str]
) -> StreamDefinition:
    full = {f"stream.{kind}.{key}": value for key, value in options.items()}
    return definition.with_overrides(full)


def _topics(definition: StreamDefinition, kind: str) -> list[str]:
    """The topics of a place; empty if it is one stream."""
    try:
        found = topics_of(definition, kind)
    except Unsupported:
        return []
    if not found:
        msg = "the place has no topics"
        raise ConfigError(msg, remedy="create one, or give another place")
    return found


def _readable(definition: StreamDefinition, kind: str) -> StreamDefinition:
    """The definition with a decoder, where its type requires one and it has none."""
    key = f"stream.{kind}.decoder.class.name"
    has_one = key in {prop.key.lower() for prop in definition.properties}
    if has_one or default_manager().backend(kind).yields is not Yields.ENVELOPE:
        return definition
    return definition.with_overrides({key: "raw"})


# --- messages ---------------------------------------------------------------------


def _decoded(
    definition: StreamDefinition, kind: str
) -> tuple[StreamDefinition, list[str]]:
    """The definition with a decoder, if it has messages, and a schema if it can."""
    try:
        if _is_typed(definition, kind):
            return definition, []
    except Unsupported as error:
        return definition, [f"it was not looked at: {error.what}"]
    try:
        json = _with(definition, kind, {"decoder.class.name": "json"})
        schema = infer_schema(
            json, default_manager(), sample=_SAMPLE, allow_class_paths=False
        )
        found = json.with_overrides({"schema": to_ddl(schema)})
    except (SchemaUnknown, ValueError) as error:
        why = error.what if isinstance(error, SchemaUnknown) else str(error)
        note = f"its messages are not decoded, as no columns of JSON were found: {why}"
        return _with(definition, kind, {"decoder.class.name": "raw"}), [note]
    return found, [f"the schema is inferred from at most {_SAMPLE} messages of JSON"]


def _is_typed(definition: StreamDefinition, kind: str) -> bool:
    """Whether a stream has rows, and not messages."""
    yields = default_manager().backend(kind).yields
    found = _readable(definition, kind)
    with opened_source(found, client_id=_CLIENT) as source:
        refuse_transport(source)
        if yields is not Yields.EITHER:
            return yields is Yields.TYPED
        return not source.metadata.schema().equals(envelope_schema())


# --- files that are published ----------------------------------------------------


def _published(place: Place, found: Recognised) -> Proposal:
    """A stream for files that are published: they have no offsets themselves."""
    rows = _first_rows(found.inputs[0])
    properties = {"streamType": FILES}
    notes = [*found.notes, *_how(place, found)]
    try:
        properties["schema"] = to_ddl(rows.schema)
    except ValueError as error:
        notes.append(f"the schema is not declared: {error}")
    definition = _with(
        StreamDefinition.of(place.name, properties),
        FILES,
        {"path": _FOLDER, _TOPIC: place.topic or place.name},
    )
    return Proposal(definition, notes=tuple(notes), rows=rows)


def _how(place: Place, found: Recognised) -> Iterator[str]:
    yield "CSV and JSON are published into the stream: it has no rows before"
    name = quote(place.name)
    yield f"run: streamfactory publish {name} {found.pattern} --writer {name}"
    yield f"the columns are those of {found.inputs[0]!r}"


def _first_rows(path: str) -> pa.RecordBatch:
    """The first rows of a file.

    Raises:
        FormatRefused: permanent; the file does not have the format.
        DecodeError: decode; its first rows cannot be read.
        SchemaUnknown: config; it has no rows.
    """
    (opened,) = open_inputs([path])
    with closing(opened):
        schema = opened.columns(_TURN)
        if schema is not None:
            opened.expect(schema, guessed=True)
            while not opened.finished:
                rows = opened.read(_TURN, MOST_ROWS)
                if rows is not None and rows.num_rows:
                    return rows
    msg = f"{path} has no rows"
    raise SchemaUnknown(msg, remedy="give a file with rows")
