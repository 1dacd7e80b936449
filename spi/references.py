"""References in values: ``${env:NAME}`` and ``${file:PATH}``.

A secret is written as a reference and resolved as late as possible, in the process
that uses it. ``$${`` stands for a literal ``${``. Files are read below the folders that
the user allows: a definition may come from somebody else.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

from streamfactory.spi.errors import ConfigError
from streamfactory.spi.files import read_file

MAX_RESOLVED: Final = 1 << 20
"""Maximum characters of a value after its references were resolved."""

FOLDERS: Final = "STREAMFACTORY_SECRETS"
"""The environment variable that names the folders of files, separated like ``PATH``."""
_RUN_SECRETS: Final = "/run/secrets"

_ESCAPE: Final = "$${"
_REFERENCE: Final = re.compile(r"\$\$\{|\$\{(?:([^{}]*)(\}))?")
_NOT_CLOSED: Final = "has a reference without closing }; write $${ for a literal ${"
_SHOWN: Final = 80
_PARTS: Final = re.compile(r"[\s,;:/@?&=|\"'{}()\[\]]+")
_SHORTEST_VALUE: Final = 3
_SHORTEST_PART: Final = 6


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
    which would mask arbitrary text.
    """
    found = set[str]()
    for match in _REFERENCE.finditer(text):
        if match[2] is not None:
            with suppress(ConfigError):
                found |= parts_to_mask(_value(match))
    return found


def parts_to_mask(value: str) -> set[str]:
    """A value from a reference, and its long parts."""
    parts = {part for part in _PARTS.split(value) if len(part) >= _SHORTEST_PART}
    return parts | {value} if len(value) >= _SHORTEST_VALUE else parts


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
        content = _read(whole, path)
        text = content.decode("utf-8")
    except (OSError, ValueError) as error:  # ValueError: bad UTF-8, a null character
        if isinstance(error, ConfigError):
            raise
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise _unresolved(whole, str(reason)) from None
    return text.rstrip("\r\n")


def _read(whole: str, path: str) -> bytes:
    """The content of a file below an allowed folder, of 1 MiB at most."""
    found = Path(os.path.realpath(path))
    if not any(map(found.is_relative_to, _folders())):
        reason = f"the file is in no folder of {FOLDERS}, by default {_RUN_SECRETS} "
        raise _unresolved(whole, f"{reason}and the working directory")
    # Links were followed above: one that was created since is refused.
    return read_file(found, MAX_RESOLVED, links=False)


def _folders() -> list[Path]:
    """The folders whose files can be read."""
    given = os.environ.get(FOLDERS)
    if given is None:
        # The root is the working directory of many services: it allows nothing.
        here = Path.cwd()
        allowed = [Path(_RUN_SECRETS), *([here] if here.parent != here else [])]
    else:
        allowed = [Path(folder) for folder in given.split(os.pathsep) if folder]
    return [folder.resolve() for folder in allowed]


def _unresolved(whole: str, reason: str) -> ConfigError:
    return ConfigError(f"{_clip(whole)} cannot be resolved: {reason}")
