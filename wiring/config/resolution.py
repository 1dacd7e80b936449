"""Resolves the value of each option, for backends and decoders alike."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from streamfactory.spi import ConfigError, Option, Problem
from streamfactory.spi.config import Setting
from streamfactory.spi.masking import MASK, mask_value, userinfo_secrets
from streamfactory.spi.references import has_reference, malformed, resolve
from streamfactory.wiring.core.nearest import nearest

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
"""Endings of keys whose value is about a secret, not a secret: a path, a kind, a
time."""


def looks_secret(key: str) -> bool:
    """Whether an undeclared key looks like that of a secret."""
    words = _WORD_ENDS.sub(" ", key).lower()
    return _SECRETIVE.search(words) is not None and _ABOUT.search(words) is None


def clip(text: str) -> str:
    """Return a value for a message: masked, quoted and shortened."""
    shown = mask_value(text)
    return repr(shown) if len(shown) <= 80 else f"{shown[:77]!r}..."


_NO_UNSETTING: Final = (
    "an empty value does not remove a property: remove it from the definition (with "
    "--unset on the command line), or set the default"
)


def resolved_or_empty(text: str) -> str:
    """Resolve the references of a text; empty if one cannot be resolved."""
    try:
        return resolve(text)
    except ConfigError:
        return ""  # reported with the option itself


def by_spelling(options: Iterable[Option]) -> dict[str, Option]:
    """Return options by all spellings of their keys, in lower case."""
    return {
        spelling.lower(): option for option in options for spelling in option.spellings
    }


def example_of(option: Option) -> str | None:
    """Return the option's example as a suggestion, if it has one."""
    return None if option.example is None else f"for example {option.example}"


class Resolver:
    """Resolves properties to settings, and collects problems.

    If the use is not known, a reference that cannot be resolved here is a warning, and
    its setting has the value None.

    Args:
        problems: The list to add problems to.
        use: ``read``, ``write``, ``spark``; None if the use is not known.
    """

    def __init__(self, problems: list[Problem], use: str | None) -> None:
        self._problems = problems
        self._use = use

    def given(
        self, option: Option, full_key: str, properties: list[Property]
    ) -> Setting | None:
        """Return the setting of an option that is set, once or by several spellings."""
        first = properties[0]
        for other in properties[1:]:
            if not _agree(option, first.text, other.text):
                mine, theirs = (
                    MASK if option.secret else clip(p.text) for p in (first, other)
                )
                what = f"is {mine}, but {other.key} is {theirs} [{other.origin}]"
                self.error(first.key, what, first.origin, "keep one of them")
                return None
        for one in properties:
            if any(_ends_with(one.key, former) for former in option.former):
                self.warn(one.key, "is deprecated", one.origin, f"write {full_key}")
        self._advise(option, first)
        if option.required and not first.text.strip():
            what = "is empty, but required"
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
        """Whether the references in a value are well-formed.

        Otherwise adds an error.
        """
        wrong = malformed(prop.text)
        if wrong is not None:
            # Text that looks like a reference may be a part of the secret.
            hint = "write ${env:NAME} or ${file:PATH}, and $${ for a literal ${"
            what = "contains a malformed reference" if secret else wrong
            self.error(prop.key, what, prop.origin, hint if secret else None)
        return wrong is None

    def absent(self, option: Option, full_key: str) -> Setting | None:
        """Return the setting of an option that is not set: its default, if any."""
        if option.default is not None:
            value = None if option.secret else option.parse(option.default)
            return Setting(
                option.key, full_key, option.default, value, "default", option.secret
            )
        wanted = not option.applies or self._use is None or self._use in option.applies
        if option.required and wanted:
            self.error(full_key, "is required", "", example_of(option))
        return None

    def resolve_all(
        self,
        options: Iterable[Option],
        given: Mapping[str, list[Property]],
        prefix: str,
    ) -> dict[str, Setting]:
        """Return the settings of all options of one namespace, by short key."""
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
        """Warn of a literal secret; on Spark it is an error, because plans show it."""
        if prop.text and not has_reference(prop.text):
            report = self.error if self._use == "spark" else self.warn
            hint = "write ${env:NAME} or ${file:PATH}"
            report(prop.key, "contains a literal secret", prop.origin, hint)

    def error(
        self, key: str, what: str, origin: str, suggestion: str | None = None
    ) -> None:
        """Add an error."""
        self._problems.append(Problem(key, what, origin, suggestion))

    def warn(
        self, key: str, what: str, origin: str, suggestion: str | None = None
    ) -> None:
        """Add a warning."""
        self._problems.append(Problem(key, what, origin, suggestion, level="warning"))

    def _parse(self, option: Option, prop: Property) -> tuple[Any] | None:
        try:
            text = resolve(prop.text)
        except ConfigError as error:
            if self._use is None:
                # It may be resolvable in the process that uses the stream.
                self.warn(prop.key, f"{error.what} here", prop.origin)
                return (None,)
            self.error(prop.key, error.what, prop.origin)
            return None
        shown = mask_value(prop.text) if has_reference(prop.text) else clip(text)
        try:
            value = option.parse(text)
        except ValueError as error:
            words = option.type.schema.get("enum", ())
            near = nearest(text.lower(), words)
            hint = f"did you mean {near}?" if near else None
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
        """Warn of credentials in a URL.

        On Spark it is an error, because plans show them.
        """
        literal = any(userinfo_secrets(prop.text)) and not has_reference(prop.text)
        if any(userinfo_secrets(text)) and (literal or self._use == "spark"):
            report = self.error if self._use == "spark" else self.warn
            hint = "set them with the options for credentials"
            report(prop.key, "contains credentials in a URL", prop.origin, hint)

    def _advise(self, option: Option, prop: Property) -> None:
        if option.deprecated:
            hint = f"write {option.deprecated}"
            self.warn(prop.key, "is deprecated", prop.origin, hint)
        if option.no_effect:
            self.warn(prop.key, f"has no effect: {option.no_effect}", prop.origin)
        if self._use and option.applies and self._use not in option.applies:
            places = " and ".join(sorted(option.applies))
            what = f"has no effect here: it applies to {places}"
            self._problems.append(Problem(prop.key, what, prop.origin, level="note"))


def _ends_with(key: str, spelling: str) -> bool:
    """Whether a full key is a spelling of an option, with or without its prefix."""
    return f".{key}".lower().endswith(f".{spelling}".lower())


def _agree(option: Option, one: str, other: str) -> bool:
    if one == other:
        return True
    try:
        return bool(option.parse(resolve(one)) == option.parse(resolve(other)))
    except ValueError:
        return False
