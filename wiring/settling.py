"""What one option's value is: the part that backends and decoders share."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any, Final

from streamfactory.spi import ConfigError, Option, Problem, Setting
from streamfactory.spi.config import MASK
from streamfactory.spi.references import has_reference, resolve

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from streamfactory.wiring.definition import Property

_SECRETIVE: Final = re.compile(
    r"passw|secret|token|credential|jaas|private|sasl|(^|[._-])key($|[._-]?pem)",
    re.IGNORECASE,
)


def looks_secret(key: str) -> bool:
    """True where a key that nobody declared reads as if its value were a secret."""
    return _SECRETIVE.search(key) is not None


def by_spelling(options: Iterable[Option]) -> dict[str, Option]:
    """Options by every spelling of their keys, in lower case."""
    return {
        spelling.lower(): option
        for option in options
        for spelling in (option.key, *option.aliases)
    }


def example_of(option: Option) -> str | None:
    """An example as a suggestion, where the option has one."""
    return None if option.example is None else f"for instance {option.example}"


class Settler:
    """Turns properties into settings, and collects what is wrong with them.

    Args:
        problems: Where problems are added.
        use: ``read``, ``write``, ``spark``; None where the use is not known.
    """

    def __init__(self, problems: list[Problem], use: str | None) -> None:
        self._problems = problems
        self._use = use

    def given(
        self, option: Option, full_key: str, properties: list[Property]
    ) -> Setting | None:
        """The setting for an option that was given, once or under several spellings."""
        first = properties[0]
        for other in properties[1:]:
            if not _agree(option, first.text, other.text):
                mine, theirs = (
                    MASK if option.secret else repr(p.text) for p in (first, other)
                )
                what = f"is {mine} here and {theirs} as {other.key} [{other.origin}]"
                self.error(first.key, what, first.origin, "say it once")
                return None
        self._advise(option, first)
        if option.required and not first.text.strip():
            what = "is empty, and required"
            self.error(first.key, what, first.origin, example_of(option))
            return None
        if option.secret:
            self.literal_secret(first)
            return Setting(
                option.key, full_key, first.text, None, first.origin, secret=True
            )
        parsed = self._parse(option, first)
        if parsed is None:
            return None
        return Setting(option.key, full_key, first.text, parsed[0], first.origin)

    def absent(self, option: Option, full_key: str) -> Setting | None:
        """The setting for an option that was not given: its default, if it has one."""
        if option.default is not None:
            value = None if option.secret else option.parse(option.default)
            return Setting(
                option.key, full_key, option.default, value, "default", option.secret
            )
        wanted = not option.applies or self._use is None or self._use in option.applies
        if option.required and wanted:
            self.error(full_key, "is required", "", example_of(option))
        return None

    def settle(
        self,
        options: Iterable[Option],
        given: Mapping[str, list[Property]],
        prefix: str,
    ) -> dict[str, Setting]:
        """Settings for all options of one name space, by their short key."""
        settings: dict[str, Setting] = {}
        for option in options:
            full_key = prefix + option.key
            if option.key in given:
                setting = self.given(option, full_key, given[option.key])
            else:
                setting = self.absent(option, full_key)
            if setting is not None:
                settings[option.key] = setting
        return settings

    def literal_secret(self, prop: Property) -> None:
        """Warn of a secret that stands in the clear."""
        if prop.text and not has_reference(prop.text):
            what, hint = (
                "holds a secret in the clear",
                "write ${env:NAME} or ${file:PATH}",
            )
            self.warn(prop.key, what, prop.origin, hint)

    def error(
        self, key: str, what: str, origin: str, suggestion: str | None = None
    ) -> None:
        """Add a problem that forbids use."""
        self._problems.append(Problem(key, what, origin, suggestion))

    def warn(
        self, key: str, what: str, origin: str, suggestion: str | None = None
    ) -> None:
        """Add a problem worth knowing."""
        self._problems.append(Problem(key, what, origin, suggestion, level="warning"))

    def _parse(self, option: Option, prop: Property) -> tuple[Any] | None:
        try:
            text = resolve(prop.text)
        except ConfigError as error:
            self.error(prop.key, error.what, prop.origin)
            return None
        shown = prop.text if has_reference(prop.text) else repr(text)
        try:
            return (option.parse(text),)
        except ValueError as error:
            words = option.type.schema.get("enum", ())
            near = difflib.get_close_matches(text.lower(), words, n=1)
            hint = f"did you mean {near[0]}?" if near else None
            self.error(prop.key, f"{shown} {error}", prop.origin, hint)
            return None

    def _advise(self, option: Option, prop: Property) -> None:
        if option.deprecated:
            hint = f"write {option.deprecated}"
            self.warn(prop.key, "is deprecated", prop.origin, hint)
        if option.no_effect:
            self.warn(prop.key, f"has no effect: {option.no_effect}", prop.origin)
        if self._use and option.applies and self._use not in option.applies:
            places = " and ".join(sorted(option.applies))
            self.warn(prop.key, f"has no effect here: it is for {places}", prop.origin)


def _agree(option: Option, one: str, other: str) -> bool:
    if one == other:
        return True
    try:
        return bool(option.parse(one) == option.parse(other))
    except ValueError:
        return False
