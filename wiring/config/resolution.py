"""What one option's value is: the part that backends and decoders share."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any, Final

from streamfactory.spi import ConfigError, Option, Problem, Setting
from streamfactory.spi.masking import MASK, mask_value, userinfo_secrets
from streamfactory.spi.references import has_reference, malformed, resolve

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from streamfactory.wiring.config.definition import Property

_WORD_ENDS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[._-]+")
_SECRETIVE: Final = re.compile(
    r"passw|passphrase|secret|credential|jaas|token\b"
    r"|\b(api|access|private|shared|account|ssl|tls|keystore|signing) ?key\b"
    r"|\bkey pem$|\buser info$|\bauth params$"
)
_ABOUT: Final = re.compile(
    r" (location|file|path|url|uri|endpoint|name|class|type|format|mechanism|provider"
    r"|algorithm|alias|id|ms|millis|seconds|enable|enabled)$"
)
"""What a key ends in whose value is about a secret: a place, a kind, a time."""


def looks_secret(key: str) -> bool:
    """True where a key that nobody declared reads as if its value were a secret."""
    words = _WORD_ENDS.sub(" ", key).lower()
    return _SECRETIVE.search(words) is not None and _ABOUT.search(words) is None


def clip(text: str) -> str:
    """A value as it is shown in a sentence: masked, quoted, and not too long."""
    shown = mask_value(text)
    return repr(shown) if len(shown) <= 80 else f"{shown[:77]!r}..."


_NO_UNSETTING: Final = (
    "an empty value does not remove a property: take it out of the definition, or set "
    "the default"
)


def by_spelling(options: Iterable[Option]) -> dict[str, Option]:
    """Options by every spelling of their keys, in lower case."""
    return {
        spelling.lower(): option for option in options for spelling in option.spellings
    }


def example_of(option: Option) -> str | None:
    """An example as a suggestion, where the option has one."""
    return None if option.example is None else f"for instance {option.example}"


class Resolver:
    """Turns properties into settings, and collects what is wrong with them.

    Where the use is not known, a reference that cannot be resolved here is a warning,
    and its setting has the value None.

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
                    MASK if option.secret else clip(p.text) for p in (first, other)
                )
                what = f"is {mine} here and {theirs} as {other.key} [{other.origin}]"
                self.error(first.key, what, first.origin, "say it once")
                return None
        for one in properties:
            if any(_ends_with(one.key, former) for former in option.former):
                self.warn(one.key, "is deprecated", one.origin, f"write {full_key}")
        self._advise(option, first)
        if option.required and not first.text.strip():
            what = "is empty, and required"
            self.error(first.key, what, first.origin, example_of(option))
            return None
        if not self.well_formed(first, secret=option.secret):
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

    def well_formed(self, prop: Property, *, secret: bool = False) -> bool:
        """Whether the references in a value are of a known kind; an error if not."""
        wrong = malformed(prop.text)
        if wrong is not None:
            # What looks like a reference may be a part of the secret.
            hint = "write ${env:NAME} or ${file:PATH}, and $${ for ${ itself"
            what = "holds what is no reference" if secret else wrong
            self.error(prop.key, what, prop.origin, hint if secret else None)
        return wrong is None

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
        """Warn of a secret that stands in the clear; Spark's plans would show it."""
        if prop.text and not has_reference(prop.text):
            tell = self.error if self._use == "spark" else self.warn
            hint = "write ${env:NAME} or ${file:PATH}"
            tell(prop.key, "holds a secret in the clear", prop.origin, hint)

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
            if self._use is None:
                # It may well be there where the stream is used.
                self.warn(prop.key, f"{error.what} here", prop.origin)
                return (None,)
            self.error(prop.key, error.what, prop.origin)
            return None
        shown = mask_value(prop.text) if has_reference(prop.text) else clip(text)
        try:
            value = option.parse(text)
        except ValueError as error:
            words = option.type.schema.get("enum", ())
            near = difflib.get_close_matches(text.lower(), words, n=1)
            hint = f"did you mean {near[0]}?" if near else None
            if not text.strip():
                hint = _NO_UNSETTING
            reason = str(error)
            for secret in userinfo_secrets(text):
                reason = reason.replace(secret, MASK)
            self.error(prop.key, f"{shown} {reason}", prop.origin, hint)
            return None
        self.credentials(prop, text)
        return (value,)

    def credentials(self, prop: Property, text: str) -> None:
        """Warn of credentials in a URL; on Spark they would be in plans."""
        literal = any(userinfo_secrets(prop.text)) and not has_reference(prop.text)
        if any(userinfo_secrets(text)) and (literal or self._use == "spark"):
            tell = self.error if self._use == "spark" else self.warn
            hint = "say them with the options made for credentials"
            tell(prop.key, "holds credentials in a URL", prop.origin, hint)

    def _advise(self, option: Option, prop: Property) -> None:
        if option.deprecated:
            hint = f"write {option.deprecated}"
            self.warn(prop.key, "is deprecated", prop.origin, hint)
        if option.no_effect:
            self.warn(prop.key, f"has no effect: {option.no_effect}", prop.origin)
        if self._use and option.applies and self._use not in option.applies:
            places = " and ".join(sorted(option.applies))
            what = f"has no effect here: it is for {places}"
            self._problems.append(Problem(prop.key, what, prop.origin, level="note"))


def _ends_with(key: str, spelling: str) -> bool:
    """Whether a full key is a spelling, with or without the prefix of its type."""
    return f".{key}".lower().endswith(f".{spelling}".lower())


def _agree(option: Option, one: str, other: str) -> bool:
    if one == other:
        return True
    try:
        return bool(option.parse(resolve(one)) == option.parse(resolve(other)))
    except ValueError:
        return False
