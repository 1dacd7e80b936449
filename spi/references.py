"""References in values: ``${env:NAME}`` and ``${file:PATH}``.

A secret is written as a reference and resolved as late as possible, in the process
that uses it. ``$${`` stands for a literal ``${``.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Final

from streamfactory.spi.errors import ConfigError

MAX_RESOLVED: Final = 1 << 20
"""Maximum characters of a value after its references were resolved."""

_ESCAPE: Final = "$${"
_REFERENCE: Final = re.compile(r"\$\$\{|\$\{(?:([^{}]*)(\}))?")
_NOT_CLOSED: Final = "has a reference without closing }; write $${ for a literal ${"
_SHOWN: Final = 80


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

    Raises:
        ConfigError: config; the variable is not set, the file cannot be read, the kind
            of reference is unknown, or the value would have more than `MAX_RESOLVED`
            characters. The message has the reference, never a value.
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
            msg = f"{_clip(whole)} cannot be resolved: the value is longer than 1 MiB"
            raise ConfigError(msg)
    return "".join((*parts, text[end:]))


def _malformed(match: re.Match[str]) -> str | None:
    if match[0] == _ESCAPE:
        return None
    if match[2] is None:
        return _NOT_CLOSED
    kind, _, name = match[1].partition(":")
    if kind not in ("env", "file") or not name.strip():
        kinds = "write ${env:NAME} or ${file:PATH}"
        return f"{_clip(match[0])} is not a reference: {kinds}"
    return None


def _clip(reference: str) -> str:
    short = len(reference) <= _SHOWN
    return reference if short else f"{reference[: _SHOWN - 3]}..."


def _value(match: re.Match[str]) -> str:
    whole = match[0]
    if whole == _ESCAPE:
        return whole[1:]
    wrong = _malformed(match)
    if wrong is not None:
        raise ConfigError(wrong)
    kind, _, name = match[1].partition(":")
    return _environment(whole, name) if kind == "env" else _file(whole, name)


def _environment(whole: str, name: str) -> str:
    try:
        value = os.environ.get(name)
    except ValueError:  # a null character or a lone surrogate in the name
        value = None
    if value is None:
        raise _unresolved(whole, "the environment variable is not set")
    return value


def _file(whole: str, path: str) -> str:
    try:
        # Reading a pipe or a device could block or never end.
        if not stat.S_ISREG(Path(path).stat().st_mode):
            raise _unresolved(whole, "it is not a regular file")
        with Path(path).open("rb") as file:
            content = file.read(MAX_RESOLVED + 1)
        text = content.decode("utf-8")
    except (OSError, ValueError) as error:  # ValueError: bad UTF-8, a null character
        if isinstance(error, ConfigError):
            raise
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise _unresolved(whole, str(reason)) from None
    if len(content) > MAX_RESOLVED:
        raise _unresolved(whole, "the file is larger than 1 MiB")
    return text.rstrip("\r\n")


def _unresolved(whole: str, reason: str) -> ConfigError:
    return ConfigError(f"{_clip(whole)} cannot be resolved: {reason}")
