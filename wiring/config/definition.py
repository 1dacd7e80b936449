"""A stream as somebody wrote it: a name and strings, each with its origin."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from streamfactory.spi import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Property:
    """One key and value as written."""

    key: str
    text: str = field(repr=False)
    origin: str
    """``configs/streams/clicks.toml:12``, ``argument``, ``environment NAME``."""


@dataclass(frozen=True, slots=True)
class StreamDefinition:
    """A named stream before validation. Nothing is checked, nothing resolved."""

    name: str
    properties: tuple[Property, ...]
    description: str = ""
    origin: str = "argument"
    """The file, or ``argument``."""
    notes: tuple[Problem, ...] = field(default=())
    """What reading it found worth telling: what an import could not carry over."""

    @classmethod
    def of(
        cls,
        name: str,
        properties: Mapping[str, str],
        *,
        origin: str = "argument",
        notes: Iterable[Problem] = (),
    ) -> StreamDefinition:
        """A definition whose properties all come from one place."""
        listed = tuple(Property(k, v, origin) for k, v in properties.items())
        return cls(name, listed, origin=origin, notes=tuple(notes))

    def with_overrides(self, overrides: Mapping[str, str]) -> StreamDefinition:
        """This definition with some properties replaced, whatever their case."""
        return self.with_properties(
            [Property(key, text, "argument") for key, text in overrides.items()]
        )

    def with_properties(self, others: Sequence[Property]) -> StreamDefinition:
        """The same, where each property knows what it comes from."""
        lowered = {prop.key.lower() for prop in others}
        kept = (p for p in self.properties if p.key.lower() not in lowered)
        return replace(self, properties=(*kept, *others))


def from_mapping(properties: Mapping[str, Any], name: str = "") -> StreamDefinition:
    """A definition from a map, as a program writes it.

    Whole numbers and booleans become their canonical text; other values that are not
    strings are an error.

    Raises:
        ConfigError: config; with every such value.
    """
    keys: Iterable[object] = properties
    problems = [
        Problem(repr(key), f"the key is a {type(key).__name__}, wanted a string")
        for key in keys
        if not isinstance(key, str)
    ]
    problems += [
        Problem(str(key), f"is a {type(value).__name__}, wanted a string", "argument")
        for key, value in properties.items()
        if not isinstance(value, str | int | bool)
    ]
    if problems:
        msg = "configuration is a map of strings"
        raise ConfigError(msg, problems=problems)
    texts = {key: canonical_text(value) for key, value in properties.items()}
    return StreamDefinition.of(name, texts)


def canonical_text(value: str | int | bool) -> str:
    """The text of a value: ``true``, ``42``, or the string as it is."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
