"""References in values: ``${env:NAME}``, ``${file:PATH}``, ``${<scheme>:WHAT}``.

A secret is written as a reference and resolved as late as possible, in the process
that uses it. ``$${`` stands for a literal ``${``. Which schemes there are is a matter
of plug-ins: see `streamfactory.spi.hooks.ReferenceScheme`.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, cast

from streamfactory.spi.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_RESOLVED: Final = 1 << 20
"""Maximum characters of a value after its references were resolved."""

FOLDERS: Final = "STREAMFACTORY_SECRETS"
"""The environment variable that names the folders of files, separated like ``PATH``."""

# By name: a configuration that was unpickled in a process of its own resolves its
# secrets there, where only this package may have been imported.
_LOOKUP: Final = "streamfactory.wiring.references.lookup"

_ESCAPE: Final = "$${"
_REFERENCE: Final = re.compile(r"\$\$\{|\$\{(?:([^{}]*)(\}))?")
_NOT_CLOSED: Final = "has a reference without closing }; write $${ for a literal ${"
_SHOWN: Final = 80
_PARTS: Final = re.compile(r"[\s,;:/@?&=|\"'{}()\[\]]+")
_SHORTEST_VALUE: Final = 3
_SHORTEST_PART: Final = 6


class _Lookup(Protocol):
    """The framework's half: finds schemes, asks them, and keeps what they answer."""

    def reason_unusable(self, scheme: str) -> str | None:
        """Why there is no such scheme, with those that there are; None if it is."""

    def value(self, scheme: str, what: str) -> str:
        """The value, looked up or kept."""

    def known_values(self, scheme: str, what: str) -> Iterable[str]:
        """The values that were looked up; newest first. Makes no request."""

    def forget(self, scheme: str, what: str) -> bool:
        """Have a value looked up again; whether this process has looked one up."""


@cache
def _lookup() -> _Lookup:
    return cast("_Lookup", import_module(_LOOKUP))


def has_reference(text: str) -> bool:
    """Whether ``text`` contains a reference."""
    return any(match[2] for match in _REFERENCE.finditer(text))


def is_reference(text: str) -> bool:
    """Whether ``text`` is exactly one reference."""
    match = _REFERENCE.fullmatch(text)
    return match is not None and match[2] is not None


def malformed(text: str) -> str | None:
    """Return the cause if a reference in ``text`` is malformed; otherwise None."""
    found = (_malformed(match) for match in _REFERENCE.finditer(text))
    return next(filter(None, found), None)


def resolve(text: str) -> str:
    """Replace every reference by its value.

    Blocks as long as the schemes of the references may: up to 60 s each.

    Raises:
        ConfigError: config; there is no such value, the scheme is unknown, or the value
            would have more than `MAX_RESOLVED` characters.
        NotAuthorized: permanent; a remote scheme refuses the value.
        ConnectionFailed, StreamTimeout: transient; a remote scheme did not answer.
        PluginError: plugin; a remote scheme does not keep its contract.
            The messages have the reference, never a value.
    """
    parts, length, end = list[str](), 0, 0
    known: dict[str, str] = {}
    for match in _REFERENCE.finditer(text):
        whole = match[0]
        if whole not in known:
            known[whole] = _value(match)
        parts += text[end : match.start()], known[whole]
        length, end = length + len(known[whole]), match.end()
        if length > MAX_RESOLVED:
            what = "cannot be resolved: the value is longer than 1 MiB"
            msg = f"{clip_reference(whole)} {what}"
            raise ConfigError(msg)
    return "".join((*parts, text[end:]))


def forget(text: str) -> bool:
    """Have the references of ``text`` looked up again when they are next resolved.

    Called after a client was refused: the value may have been replaced meanwhile.

    Returns:
        Whether this process has looked a value up, by a scheme whose values are kept.
        Those of other schemes, as ``env``, are looked up each time anyway.
    """
    return sum(_lookup().forget(*_split(match)) for match in _well_formed(text)) > 0


def with_folder(text: str, folder: str) -> str:
    """Make the relative paths of references to files absolute.

    Args:
        text: The text.
        folder: What they are relative to.
    """

    def absolute(match: re.Match[str]) -> str:
        kind, _, name = (match[1] or "").partition(":")
        if kind != "file" or match[2] is None or not name.strip():
            return match[0]
        return f"${{file:{Path(folder, name)}}}"

    return _REFERENCE.sub(absolute, text)


def values_to_mask(text: str) -> set[str]:
    """The values of the references in ``text``, and the long parts of each.

    A list or an address from a reference is shown in parts by those who use it. What
    cannot be resolved here is omitted, and so are values of fewer than 3 characters,
    which would mask arbitrary text. Of remote schemes it is the values that this
    process looked up, those of the past included: nothing is asked for to mask a text.
    """
    found = set[str]()
    for match in _well_formed(text):
        for value in _lookup().known_values(*_split(match)):
            found |= parts_to_mask(value)
    return found


def known_text(text: str) -> str | None:
    """``text`` with its references resolved from values looked up before; or None."""
    parts, end = list[str](), 0
    for match in _REFERENCE.finditer(text):
        value: str | None = _ESCAPE[1:]
        if match[0] != _ESCAPE:
            if _malformed(match) is not None:
                return None
            value = next(iter(_lookup().known_values(*_split(match))), None)
        if value is None:
            return None
        parts += text[end : match.start()], value
        end = match.end()
    return "".join((*parts, text[end:]))


def parts_to_mask(value: str) -> set[str]:
    """A value from a reference, and its long parts."""
    parts = {part for part in _PARTS.split(value) if len(part) >= _SHORTEST_PART}
    return parts | {value} if len(value) >= _SHORTEST_VALUE else parts


def clip_reference(reference: str) -> str:
    """A reference for a message: shortened."""
    short = len(reference) <= _SHOWN
    return reference if short else f"{reference[: _SHOWN - 3]}..."


def _split(match: re.Match[str]) -> tuple[str, str]:
    scheme, _, what = match[1].partition(":")
    return scheme, what


def _well_formed(text: str) -> list[re.Match[str]]:
    found = (match for match in _REFERENCE.finditer(text) if match[0] != _ESCAPE)
    return [match for match in found if _malformed(match) is None]


def _malformed(match: re.Match[str]) -> str | None:
    if match[0] == _ESCAPE:
        return None
    if match[2] is None:
        return _NOT_CLOSED
    scheme, what = _split(match)
    if not scheme or not what.strip():
        reason: str | None = "write ${env:NAME} or ${file:PATH}"
    else:
        reason = _lookup().reason_unusable(scheme)
    return reason and f"{clip_reference(match[0])} is not a reference: {reason}"


def _value(match: re.Match[str]) -> str:
    whole = match[0]
    if whole == _ESCAPE:
        return whole[1:]
    wrong = _malformed(match)
    if wrong is not None:
        raise ConfigError(wrong)
    return _lookup().value(*_split(match))
