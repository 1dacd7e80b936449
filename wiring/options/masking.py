"""Which keys are those of secrets, and how values are shown in messages."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from streamfactory.spi.masking import mask_secrets, mask_value
from streamfactory.spi.references import has_reference, values_to_mask

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streamfactory.spi import Problem

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


def masked_problems(problems: Iterable[Problem], texts: Iterable[str]) -> list[Problem]:
    """Problems without what the references in the texts of properties stand for."""
    found = set[str]().union(
        *(values_to_mask(text) for text in texts if has_reference(text))
    )

    def mask(text: str) -> str:
        return mask_secrets(text, found)

    return [
        replace(
            problem,
            key=mask(problem.key),
            what=mask(problem.what),
            suggestion=problem.suggestion and mask(problem.suggestion),
        )
        for problem in problems
    ]
