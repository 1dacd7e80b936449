"""Reads the streams of Apache Pinot's table configs.

Keys with an equivalent are renamed; keys without one are dropped and reported in a
note. Options are not validated: a key that is neither Pinot's nor Kafka's is passed on,
and the validator reports it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from streamfactory.spi import Problem
from streamfactory.wiring.config.definition import Property, StreamDefinition
from streamfactory.wiring.config.documents import refusal
from streamfactory.wiring.config.imports import pinotclients as clients
from streamfactory.wiring.config.imports import pinotnames
from streamfactory.wiring.config.imports.pinotcolumns import pinot_columns
from streamfactory.wiring.config.imports.pinotvalues import FLUSH, ignored_value
from streamfactory.wiring.options.texts import canonical_text, not_text, pointer_of
from streamfactory.wiring.options.vocabulary import FRAMEWORK_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_LEGACY: Final = ("tableIndexConfig", "streamConfigs")
_INGESTION: Final = ("ingestionConfig", "streamIngestionConfig")
_PLACES: Final = (
    _LEGACY,
    (*_INGESTION, "streamConfigMaps"),
    # not a Pinot file, but a part that users copy from a table config
    ("streamConfigs",),
    ("streamConfigMaps",),
)
_WRAPPERS: Final = ("REALTIME", "realtime")  # of GET /tables and GET /tableConfigs
_VARIABLE: Final = re.compile(r"\$\{([^{}:]+)(?::([^{}]*))?\}")
_OURS: Final = ("env", "file")  # the kinds of our own references
_FOREIGN: Final = re.compile(r"(?<!\$)\$\{(?!(?:env|file):)(?=[^{}]*\})")


def read_pinot(
    body: Mapping[str, Any], origin_of: Callable[[str], str], default_name: str
) -> list[StreamDefinition]:
    """Read the streams of a table config, or of a bare map of stream configs.

    Args:
        body: The JSON object of the file, or the response of Pinot's REST interface.
        origin_of: Returns the origin of the key at a JSON pointer.
        default_name: The name of a table without a name.

    Returns:
        One definition per stream config, in order.

    Raises:
        ConfigError: config; with all problems.
    """
    return _Table(body, origin_of, default_name).definitions()


@dataclass(slots=True)
class _Findings:
    """Problems and notes of an import."""

    origin_of: Callable[[str], str]
    problems: list[Problem] = field(default_factory=list)
    notes: list[Problem] = field(default_factory=list)

    def problem(self, key: str, what: str, pointer: str, hint: str = "") -> None:
        origin = self.origin_of(pointer)
        self.problems.append(Problem(key, what, origin, hint or None))

    def note(self, key: str, what: str, pointer: str, hint: str = "") -> None:
        origin = self.origin_of(pointer)
        self.notes.append(Problem(key, what, origin, hint or None, "warning"))


# --- the table --------------------------------------------------------------------


class _Table:
    """One table config while it is converted."""

    def __init__(
        self,
        body: Mapping[str, Any],
        origin_of: Callable[[str], str],
        default_name: str,
    ) -> None:
        self._body = body
        self._origin_of = origin_of
        self._found = _Findings(origin_of)
        inner = [w for w in _WRAPPERS if isinstance(body.get(w), dict)]
        self._wrapper = tuple(inner[:1])
        self._table: Mapping[str, Any] = body[inner[0]] if inner else body
        name = self._table.get("tableName") or default_name
        self._name = re.sub(r"_(REALTIME|OFFLINE)$", "", str(name))

    def definitions(self) -> list[StreamDefinition]:
        maps = self._maps()
        self._tell_unread()
        streams = [
            _Stream(keys, pointer, self._origin_of) for pointer, keys in maps.items()
        ]
        self._carry_columns(streams)
        problems = [*self._found.problems, *(p for s in streams for p in s.problems)]
        if len(streams) > 1:
            problems += _rules_of_many(streams)
        origin = self._origin_of("")
        if problems:
            raise refusal(origin, problems)
        return [
            StreamDefinition(
                self._name_of(stream, number, len(streams)),
                tuple(stream.properties),
                origin=origin,
                notes=(*stream.notes, *self._found.notes),
            )
            for number, stream in enumerate(streams)
        ]

    def _carry_columns(self, streams: list[_Stream]) -> None:
        """Enable the metadata columns that the table uses."""
        columns = pinot_columns(self._table, *self._wrapper)
        for column in columns:
            what = "has no equivalent here"
            if column.place is not None:
                what = f"is {column.place} here"
            self._found.note(column.name, what, column.pointer)
        known_here = [column for column in columns if column.place]
        words = {"metadata.columns": bool(known_here)}
        words["includeHeaders"] = any(column.is_header for column in columns)
        for stream in streams:
            for key, wanted in words.items():
                if wanted and not any(p.key == key for p in stream.properties):
                    origin = self._origin_of(known_here[0].pointer)
                    stream.properties.append(Property(key, "true", origin))

    def _name_of(self, stream: _Stream, number: int, count: int) -> str:
        if count == 1:
            return self._name
        topic = stream.topic
        # Pulsar topics contain slashes, which stream names must not.
        suffix = re.sub(r"[^\w.-]+", "_", topic.text) if topic else str(number)
        return f"{self._name}_{suffix}"

    def _maps(self) -> dict[str, Mapping[str, Any]]:
        """Return the stream configs by JSON pointer."""
        places = {p: v for p in _PLACES if (v := _at(self._table, p))}
        if not places and "streamConfigs" not in self._table and self._is_bare():
            return {"": self._table}
        if not places:
            offline = {"OFFLINE", "offline"} & self._body.keys()
            if offline or self._table.get("tableType") == "OFFLINE":
                what = "is of type OFFLINE: only REALTIME tables read streams"
            else:
                listed = " nor ".join(".".join(place) for place in _PLACES[:2])
                what = f"has no stream config: neither {listed}"
            self._found.problem("table config", what, "")
            return {}
        (place, value), *others = places.items()
        if others:
            other = ".".join(others[0][0])
            what = f"and {other} exclude each other: Pinot refuses both"
            self._found.problem(".".join(place), what, self._pointer(*place))
        return self._listed(place, value)

    def _is_bare(self) -> bool:
        words = ("streamType", "stream.")
        return any(key.startswith(words) for key in self._table)

    def _listed(
        self, place: tuple[str, ...], value: object
    ) -> dict[str, Mapping[str, Any]]:
        pointer = self._pointer(*place)
        if place[-1] == "streamConfigs":
            entries = {pointer: value}
        elif isinstance(value, list):
            entries = {f"{pointer}/{i}": entry for i, entry in enumerate(value)}
        else:
            self._found.problem(".".join(place), "is not an array of objects", pointer)
            return {}
        maps: dict[str, Mapping[str, Any]] = {}
        for at, entry in entries.items():
            if isinstance(entry, dict):
                maps[at] = entry
            else:
                self._found.problem(".".join(place), "is not an object", at)
        return maps

    def _tell_unread(self) -> None:
        """Add notes on keys that are not imported."""
        for key in _members(self._table, _INGESTION):
            if key != "streamConfigMaps":
                reason = pinotnames.PINOT_TABLE_LEVEL.get(key, "the key is unknown")
                pointer = self._pointer(*_INGESTION, key)
                self._found.note(key, f"is not imported: {reason}", pointer)
        if self._is_bare():
            return
        used = {"tableName", "tableType", *self._wrapper, *(p[0] for p in _PLACES)}
        names = {key: None for key, value in self._body.items() if value}
        names |= {key: None for key, value in self._table.items() if value}
        parts = [key for key in names if key not in used]
        for outer, inner in (_LEGACY, _INGESTION):
            rest = [key for key in _members(self._table, (outer,)) if key != inner]
            parts += [f"{outer}.{key}" for key in rest]
        if parts:
            what = f"not part of a stream, and not imported: {', '.join(parts)}"
            self._found.note("table config", what, "")

    def _pointer(self, *keys: str) -> str:
        return pointer_of(*self._wrapper, *keys)


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _members(value: Any, path: tuple[str, ...]) -> list[str]:
    found = _at(value, path)
    return list(found) if isinstance(found, dict) else []


def _rules_of_many(streams: list[_Stream]) -> list[Problem]:
    """Check Pinot's rules for several stream configs in one table."""
    problems: list[Problem] = []
    topics: dict[str, Property] = {}
    first = streams[0]
    for stream in streams:
        if stream.type != first.type:
            what = f"is {stream.type!r}, but {first.type!r} in the first stream config"
            problems.append(Problem("streamType", what, stream.origin))
        if stream.topic is not None:
            same = topics.setdefault(stream.topic.text, stream.topic)
            if same is not stream.topic:
                what = (
                    f"{same.text!r} is read by another stream config, at {same.origin}"
                )
                problems.append(Problem(same.key, what, stream.topic.origin))
        mine, theirs = stream.thresholds(), first.thresholds()
        for key in sorted(
            key for key in mine | theirs if mine.get(key) != theirs.get(key)
        ):
            what = "differs from the first stream config: Pinot requires the same value"
            problems.append(Problem(key, what, stream.origin))
    return problems


# --- one stream config --------------------------------------------------------------


class _Stream(_Findings):
    """One stream config, converted key by key."""

    def __init__(
        self, keys: Mapping[str, Any], pointer: str, origin_of: Callable[[str], str]
    ) -> None:
        super().__init__(origin_of)
        self.origin = origin_of(pointer)
        self.properties: list[Property] = []
        self._pointer = pointer
        self._written, self.type = _types(keys)
        self._given = keys.keys()
        for key, value in keys.items():
            text = canonical_text(value)
            if text is None:
                self.problem(key, not_text(value), pointer + pointer_of(key))
            else:
                self._carry(key, self._reference(key, text))

    @property
    def topic(self) -> Property | None:
        """Return the property with the topic."""
        wanted = f"stream.{self.type}.topic.name"
        return next((p for p in self.properties if p.key == wanted), None)

    def thresholds(self) -> dict[str, object]:
        """Return the flush thresholds by our keys, as comparable values."""
        values: dict[str, object] = {}
        for option in FRAMEWORK_OPTIONS.values():
            spellings = option.spellings
            given = [p for p in self.properties if p.key in spellings]
            if option.key.startswith(FLUSH) and given:
                try:
                    values[option.key] = option.parse(given[0].text)
                except ValueError:
                    values[option.key] = given[0].text
        return values

    def _carry(self, key: str, text: str) -> None:
        suffix = self._suffix(key)
        if reason := self._reason_to_drop(key, suffix, text):
            self.note(key, f"is not imported: {reason}", self._at(key))
        elif ignored := ignored_value(key, suffix, text, self._given):
            what, hint = ignored
            self.note(key, f"is not imported: {what}", self._at(key), hint)
        elif suffix is not None:
            self._put(
                f"stream.{self.type}.{suffix}", self._text(key, suffix, text), key
            )
        elif key == "streamType":
            if text.lower() != self.type:
                what = f"{text!r} is imported as {self.type!r}, by its consumer factory"
                self.note(key, what, self._at(key))
            self._put(key, self.type, key)
        elif key == "stopOnDecodeError":
            self._carry_decode_errors(key, text)
        elif place := self._place(key):
            self.note(key, f"is imported as {place}", self._at(key))
            self._put(place, text, key)
        else:
            self._put(key, text, key)

    def _suffix(self, key: str) -> str | None:
        # Pinot's Kafka plug-in reads stream.kafka.* under any name of the type.
        for prefix in (f"stream.{self._written}.", f"stream.{self.type}."):
            if key.startswith(prefix):
                return key.removeprefix(prefix)
        return None

    def _reason_to_drop(self, key: str, suffix: str | None, text: str) -> str | None:
        kafka = self.type == "kafka"
        if suffix is not None:
            start, reason = pinotnames.PINOT_HIGH_LEVEL
            if suffix.startswith(start):
                return reason
            if suffix == "consumer.type" and text.strip().lower() == "highlevel":
                return pinotnames.PINOT_GROUPS
            own = clients.KAFKA_DROPPED.get(suffix) if kafka else None
            return own or pinotnames.PINOT_DROPPED_SUFFIXES.get(suffix)
        if kafka and key.startswith("config.providers."):
            key = "config.providers"
        own = clients.KAFKA_CLIENT_DROPPED.get(key) if kafka else None
        if self.type == "kinesis":
            own = clients.KINESIS_DROPPED.get(key)
        return own or pinotnames.PINOT_DROPPED.get(key)

    def _place(self, key: str) -> str | None:
        """Return our key of a client property, which has no prefix in Pinot."""
        if self.type == "kafka" and (
            key in clients.KAFKA_CLIENT_KEYS
            or key.startswith(clients.KAFKA_CLIENT_PREFIXES)
        ):
            return f"stream.kafka.consumer.prop.{key}"
        if self.type == "kinesis" and key in clients.KINESIS_KEYS:
            return f"stream.kinesis.{key}"
        return None

    def _text(self, key: str, suffix: str, text: str) -> str:
        if suffix == "consumer.factory.class.name":
            return self._class(key, text, pinotnames.PINOT_FACTORIES)
        if suffix == "decoder.class.name":
            return self._class(key, text, pinotnames.PINOT_DECODERS)
        client = suffix.removeprefix("consumer.prop.")
        if client not in (suffix, "auto.offset.reset"):
            what = "Pinot ignores it; here it is passed to the client"
            self.note(key, what, self._at(key))
        return text

    def _class(self, key: str, text: str, names: Mapping[str, str]) -> str:
        ours = pinotnames.pinot_name(text, names)
        if ours is None:
            if "." in text:
                what = f"{text!r} is a Java class without an equivalent here"
                self.note(key, what, self._at(key), "docs/spi.md: how to write one")
            return text
        loss = pinotnames.PINOT_DECODER_LOSSES.get(text.strip().rpartition(".")[2])
        if loss:
            self.note(key, f"is imported as {ours!r}: {loss}", self._at(key))
        return ours

    def _carry_decode_errors(self, key: str, text: str) -> None:
        policy = {"true": "fail", "false": "skip"}.get(text.strip().lower())
        if policy is None:
            self.problem(key, f"{text!r} is neither true nor false", self._at(key))
        else:
            self._put("decode.on.error", policy, key)

    def _reference(self, key: str, text: str) -> str:
        """Convert Pinot's ``${NAME}`` and ``${NAME:default}``, if alone in a value."""
        match = _VARIABLE.fullmatch(text)
        if match is None:
            # Pinot does not replace them within a longer text.
            return _FOREIGN.sub("$${", text)
        name, default = match.groups()
        if name in _OURS and default is not None:
            return text
        what = f"{text if default is None else f'${{{name}:...}}'} is a variable"
        if default is not None:
            what += ", whose default is not imported"
        self.note(key, what, self._at(key), f"imported as ${{env:{name}}}")
        return f"${{env:{name}}}"

    def _put(self, key: str, text: str, written: str) -> None:
        origin = self.origin_of(self._at(written))
        self.properties.append(Property(key, text, origin))

    def _at(self, key: str) -> str:
        return self._pointer + pointer_of(key)


def _types(keys: Mapping[str, Any]) -> tuple[str, str]:
    """Return the stream type as written, and ours."""
    written = str(keys.get("streamType") or "")
    if not written:
        prefixed = [key.split(".") for key in keys if key.startswith("stream.")]
        written = next((parts[1] for parts in prefixed if len(parts) > 2), "")
    factory = str(keys.get(f"stream.{written}.consumer.factory.class.name") or "")
    return written, pinotnames.pinot_name(
        factory, pinotnames.PINOT_FACTORIES
    ) or written.lower()
