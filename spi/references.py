"""References in values: ``${env:NAME}`` and ``${file:PATH}``.

A secret is written as a reference and resolved as late as possible, in the process
that uses it. ``$${`` stands for a literal ``${``.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from streamfactory.spi.errors import ConfigError

_REFERENCE: Final = re.compile(r"\$?\$\{([^{}]*)\}")
_NO_REFERENCE: Final = "{} is no reference: write ${{env:NAME}} or ${{file:PATH}}"


def has_reference(text: str) -> bool:
    """True where ``text`` holds a reference."""
    return any(not m[0].startswith("$$") for m in _REFERENCE.finditer(text))


def is_reference(text: str) -> bool:
    """True where ``text`` is one reference and nothing else."""
    match = _REFERENCE.fullmatch(text)
    return match is not None and not match[0].startswith("$$")


def malformed(text: str) -> str | None:
    """What is wrong with the form of a reference in ``text``; None if nothing."""
    for match in _REFERENCE.finditer(text):
        if not match[0].startswith("$$") and _parts(match[1]) is None:
            return _NO_REFERENCE.format(match[0])
    return None


def resolve(text: str) -> str:
    """Replace every reference by what it names.

    Raises:
        ConfigError: config; the variable is not set, the file cannot be read, or the
            reference is of no known kind. Names the reference, never a value.
    """
    return _REFERENCE.sub(_value, text)


def _value(match: re.Match[str]) -> str:
    whole, inner = match[0], match[1]
    if whole.startswith("$$"):
        return whole[1:]
    parts = _parts(inner)
    if parts is None:
        msg = _NO_REFERENCE.format(whole)
        raise ConfigError(msg)
    kind, name = parts
    return _environment(whole, name) if kind == "env" else _file(whole, name)


def _parts(inner: str) -> tuple[str, str] | None:
    kind, _, name = inner.partition(":")
    return (kind, name) if kind in ("env", "file") and name.strip() else None


def _environment(whole: str, name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        msg = f"{whole} cannot be resolved: the environment variable is not set"
        raise ConfigError(msg)
    return value


def _file(whole: str, path: str) -> str:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # ValueError: bad UTF-8, a null character
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        msg = f"{whole} cannot be resolved: {reason}"
        raise ConfigError(msg) from None
    return text.rstrip("\r\n")
