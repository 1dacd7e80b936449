"""Reads Apache Hop's `data-stream` metadata, as found in a Hop project."""

from __future__ import annotations

import re
import tempfile
from typing import TYPE_CHECKING, Any, Final

from streamfactory.spi import Problem, Unsupported
from streamfactory.spi.references import has_reference
from streamfactory.wiring.config.definition import Property, StreamDefinition
from streamfactory.wiring.config.documents import refusal
from streamfactory.wiring.options.texts import canonical_text, not_text, pointer_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_FILE: Final[dict[str, str | None]] = {
    "filename": "stream.file.path",
    "batchSize": "batch.rows",
}
_HOST, _PORT, _LOCATION = "hostname", "port", "stream.flight.location"
_FLIGHT: Final[dict[str, str | None]] = {
    _HOST: _HOST,
    _PORT: _PORT,
    "batchSize": "batch.rows",
    "bufferSize": None,
}
"""Our option for each Hop key. Host and port become `_LOCATION`; None: no
equivalent."""
_IMPLEMENTATIONS: Final = {
    "ArrowRandomAccessFile": ("file", {"stream.file.format": "file"}, _FILE),
    "ArrowStreamFile": ("file", {"stream.file.format": "stream"}, _FILE),
    "ArrowFlightStream": (
        "flight",
        {_HOST: "localhost", _PORT: "33333"},
        _FLIGHT,
    ),
}
"""By implementation id: our type, properties implied by the id, our names of its
keys."""

_NUMBERS: Final = frozenset({"batchSize", "bufferSize", "port"})
_TOP: Final = frozenset({"name", "description", "virtualPath", "dataStream"})
_PLAIN: Final = re.compile(r"grpc(?:\+tcp)?://([^/:\[\]]+):(\d{1,5})/?")
_VARIABLE: Final = re.compile(r"\$\{([^{}]+)\}|%%([^%]+)%%")


def read_hop(
    body: Mapping[str, Any], origin_of: Callable[[str], str], default_name: str
) -> list[StreamDefinition]:
    """Read one metadata element; the list has one definition.

    Args:
        body: The JSON object of the file.
        origin_of: Returns the origin of the key at a JSON pointer.
        default_name: The name of an element without a name.

    Raises:
        ConfigError: config; with all problems.
    """
    return [_Element(body, origin_of, default_name).definition()]


def write_hop(definition: StreamDefinition) -> tuple[dict[str, Any], list[str]]:
    """Return a definition as a metadata element of Hop, and the keys left out of it.

    `read_hop` makes the same stream of the element, without what was left out.

    Raises:
        Unsupported: misuse; Hop has no implementation of such a stream.
    """
    given = {one.key.lower(): one.text for one in definition.properties}
    kind = given.pop("streamtype", "").strip().lower()
    for known, (ours, fixed, renamed) in _IMPLEMENTATIONS.items():
        implied = {key: text for key, text in fixed.items() if "." in key}
        if ours != kind or any(given.get(k) != text for k, text in implied.items()):
            continue
        for key in implied:
            del given[key]
        if given.get(f"stream.{kind}.topic.name") == definition.name:
            del given[f"stream.{kind}.topic.name"]
        if kind == "flight":
            given |= _address(definition, given.pop(_LOCATION, ""))
        settings = {
            key: given.pop(to)
            for key, to in renamed.items()
            if to is not None and to in given
        }
        element: dict[str, Any] = {"name": definition.name}
        if definition.description:
            element["description"] = definition.description
        if folder := given.pop("stream.meta.virtualpath", ""):
            element["virtualPath"] = folder
        return {**element, "dataStream": {known: settings}}, sorted(given)
    msg = f"Hop has no data stream of the type {kind!r} with these options"
    remedy = "it has flight, and file with stream.file.format=file or stream"
    raise Unsupported(msg, stream=definition.name, remedy=remedy)


def _address(definition: StreamDefinition, location: str) -> dict[str, str]:
    """Host and port of a location."""
    found = _PLAIN.fullmatch(location)
    if found is None:
        msg = f"Hop has host and port of a server, and not the location {location!r}"
        remedy = "give stream.flight.location as grpc://HOST:PORT"
        raise Unsupported(msg, stream=definition.name, remedy=remedy)
    return {_HOST: found[1], _PORT: found[2]}


class _Element:
    """One element while it is converted."""

    def __init__(
        self,
        body: Mapping[str, Any],
        origin_of: Callable[[str], str],
        default_name: str,
    ) -> None:
        self._body = body
        self._origin_of = origin_of
        self._default_name = default_name
        self._problems: list[Problem] = []
        self._notes: list[Problem] = []

    def definition(self) -> StreamDefinition:
        name = self._word("name") or self._default_name
        description, folder = self._word("description"), self._word("virtualPath")
        properties = self._properties(name)
        if folder:
            origin = self._origin_of("/virtualPath")
            properties.append(Property("stream.meta.virtualPath", folder, origin))
        for key in [key for key in self._body if key not in _TOP]:
            self._note(key, "is not imported", self._origin_of(pointer_of(key)))
        origin = self._origin_of("")
        if self._problems:
            raise refusal(origin, self._problems)
        return StreamDefinition(
            name, tuple(properties), description, origin, tuple(self._notes)
        )

    def _properties(self, name: str) -> list[Property]:
        chosen = self._implementation()
        if chosen is None:
            return []
        known, settings = chosen
        kind, fixed, renamed = _IMPLEMENTATIONS[known]
        place = pointer_of("dataStream", known)
        texts = {"streamType": kind, f"stream.{kind}.topic.name": name, **fixed}
        origins = dict.fromkeys(texts, self._origin_of(place))
        if "name" in self._body:
            origins[f"stream.{kind}.topic.name"] = self._origin_of("/name")
        for key, value in settings.items():
            origin = self._origin_of(place + pointer_of(key))
            text, ours = self._setting(key, value, renamed, origin), renamed.get(key)
            if text is not None and ours is not None:
                texts[ours], origins[ours] = text, origin
        if kind == "flight":
            host, port = texts.pop(_HOST), texts.pop(_PORT)
            texts[_LOCATION] = f"grpc://{self._reachable(host, origins[_HOST])}:{port}"
            origins[_LOCATION] = origins[_HOST]
        return [Property(key, text, origins[key]) for key, text in texts.items()]

    def _reachable(self, host: str, origin: str) -> str:
        """Return the host for clients, if Hop has the server's listening address."""
        if host.strip() not in ("0.0.0.0", "::"):  # noqa: S104 - refused, not used
            return host.strip()
        what = f"{host} is an address to listen on: clients connect to 127.0.0.1"
        self._note(_HOST, what, origin, "set stream.flight.location")
        return "127.0.0.1"

    def _implementation(self) -> tuple[str, Mapping[str, Any]] | None:
        origin = self._origin_of("/dataStream")
        listed = ", ".join(_IMPLEMENTATIONS)
        choices = self._body.get("dataStream")
        if not isinstance(choices, dict) or len(choices) != 1:
            what = "must have one key, the implementation, with its settings"
            self._problem("dataStream", what, origin, f"known are {listed}")
            return None
        [(known, settings)] = choices.items()
        if known not in _IMPLEMENTATIONS:
            origin = self._origin_of(pointer_of("dataStream", known))
            what = "is not a known implementation of a data stream"
            self._problem(known, what, origin, f"known are {listed}")
            return None
        if not isinstance(settings, dict):
            self._problem(known, "is not an object of settings", origin)
            return None
        return known, settings

    def _setting(
        self, key: str, value: object, renamed: Mapping[str, str | None], origin: str
    ) -> str | None:
        """Return the text of one setting; None if there is nothing to import."""
        text = canonical_text(value)
        if text is None:
            self._problem(key, not_text(value), origin)
            return None
        # Hop's dialog writes empty fields as empty strings.
        if not text.strip():
            return None
        if key == "schemaDefinition" and renamed is _FLIGHT:
            what = f"the schema definition {text!r} of the Hop project is not read"
            self._note(key, what, origin, "declare the option `schema`")
            return None
        if key not in renamed:
            self._note(key, "is not imported", origin)
            return None
        text = _VARIABLE.sub(lambda match: self._variable(key, match, origin), text)
        if key in _NUMBERS and not text.strip().isdecimal() and not has_reference(text):
            # Hop silently uses its default.
            self._problem(key, f"{text!r} is not a whole number", origin)
        if renamed[key] is None:
            what = "has no equivalent: the server stores rows, and readers bound memory"
            self._note(key, what, origin)
            return None
        return text

    def _variable(self, key: str, match: re.Match[str], origin: str) -> str:
        name = match[1] or match[2]
        if name == "java.io.tmpdir":
            return tempfile.gettempdir()
        if name.startswith(("env:", "file:")):
            return match[0]  # ours already
        reference = f"${{env:{name}}}"
        what = f"the Hop variable {match[0]} is read from the environment: {reference}"
        self._note(key, what, origin)
        return reference

    def _word(self, key: str) -> str:
        value = self._body.get(key, "")
        if isinstance(value, str):
            return value
        self._problem(key, "is not a string", self._origin_of(pointer_of(key)))
        return ""

    def _problem(
        self, key: str, what: str, origin: str, suggestion: str | None = None
    ) -> None:
        self._problems.append(Problem(key, what, origin, suggestion))

    def _note(
        self, key: str, what: str, origin: str, suggestion: str | None = None
    ) -> None:
        self._notes.append(Problem(key, what, origin, suggestion, "warning"))
