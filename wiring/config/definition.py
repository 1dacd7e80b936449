"""A stream definition before validation: a name and strings, each with its origin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from streamfactory.spi import ConfigError, Problem
from streamfactory.wiring.core.nearest import nearest
from streamfactory.wiring.options.texts import canonical_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, slots=True)
class Property:
    """One key and its value, as written."""

    key: str
    text: str = field(repr=False)
    origin: str
    """``configs/streams/clicks.toml:12``, ``argument``, ``environment NAME``."""
    folder: str = ""
    """What relative paths in it are relative to; empty: the working folder."""


@dataclass(frozen=True, slots=True)
class StreamDefinition:
    """A stream before validation: neither checked nor resolved."""

    name: str
    properties: tuple[Property, ...]
    description: str = ""
    origin: str = "argument"
    """The file, or ``argument``."""
    notes: tuple[Problem, ...] = field(default=())
    """Notes of the import: keys that could not be converted."""

    @classmethod
    def of(
        cls,
        name: str,
        properties: Mapping[str, str],
        *,
        origin: str = "argument",
        notes: Iterable[Problem] = (),
    ) -> StreamDefinition:
        """Create a definition whose properties have one origin."""
        listed = tuple(Property(k, v, origin) for k, v in properties.items())
        return cls(name, listed, origin=origin, notes=tuple(notes))

    def with_overrides(self, overrides: Mapping[str, Any] | None) -> StreamDefinition:
        """Return the definition with some properties replaced; keys ignore case.

        None replaces nothing.

        Raises:
            ConfigError: config; values that `from_mapping` refuses.
        """
        texts = {} if overrides is None else canonical_texts(overrides)
        return self.with_properties(
            [Property(key, text, "argument") for key, text in texts.items()]
        )

    def in_folder(self, folder: str) -> StreamDefinition:
        """This definition; paths relative to nothing else are relative to a folder."""
        placed = (
            prop if prop.folder else replace(prop, folder=folder)
            for prop in self.properties
        )
        return replace(self, properties=tuple(placed))

    def without(self, keys: Sequence[str]) -> StreamDefinition:
        """This definition without some properties, whatever the case of their keys.

        Raises:
            ConfigError: config; a key is not in the definition, with every such key.
        """
        written = {prop.key.lower(): prop.key for prop in self.properties}
        problems = [
            Problem(
                key, f"is not set in {self.origin}", "argument", _near(key, written)
            )
            for key in keys
            if key.strip().lower() not in written
        ]
        if problems:
            msg = "properties cannot be removed"
            raise ConfigError(msg, stream=self.name, problems=problems)
        removed = {key.strip().lower() for key in keys}
        kept = (p for p in self.properties if p.key.lower() not in removed)
        return replace(self, properties=tuple(kept))

    def with_properties(self, others: Sequence[Property]) -> StreamDefinition:
        """Replace properties by others that have their own origins."""
        lowered = {prop.key.lower() for prop in others}
        kept = (p for p in self.properties if p.key.lower() not in lowered)
        return replace(self, properties=(*kept, *others))


def _near(key: str, written: Mapping[str, str]) -> str | None:
    """The nearest key of a definition, as a suggestion."""
    near = nearest(key.strip().lower(), written)
    return f"did you mean {written[near]}?" if near else None


def from_mapping(properties: Mapping[str, Any], name: str = "") -> StreamDefinition:
    """Create a definition from a map of a program.

    Raises:
        ConfigError: config; with every value that has no canonical text.
    """
    return StreamDefinition.of(name, canonical_texts(properties))


def canonical_texts(properties: Mapping[str, Any]) -> dict[str, str]:
    """Properties as text, from a map as a program writes it.

    Whole numbers and booleans become their canonical text; other values that are not
    strings are an error.

    Raises:
        ConfigError: config; it is no map, or with all such values.
    """
    kind: type = type(properties)
    if not issubclass(kind, Mapping):
        msg = f"properties are of type {kind.__name__!r}"
        remedy = "pass a dictionary, such as {'topic.name': 'clicks'}"
        raise ConfigError(msg, remedy=remedy)
    keys: Iterable[object] = properties
    problems = [
        Problem(repr(key), f"the key is a {type(key).__name__}, expected a string")
        for key in keys
        if not isinstance(key, str)
    ]
    texts = dict[str, str]()
    for key, value in properties.items():
        text = canonical_text(value)
        if text is None:
            what = f"is a {type(value).__name__}, expected a string"
            problems.append(Problem(str(key), what, "argument"))
        else:
            texts[key] = text
    if problems:
        msg = "the configuration must be a map of strings"
        raise ConfigError(msg, problems=problems)
    return texts
