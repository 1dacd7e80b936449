"""Credentials within values: the part of a URL before the ``@`` of its host.

Options that hold a secret are declared so, and are masked as a whole. Any other value
may be a URL, and what somebody wrote into it is masked wherever the value is shown.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterator

MASK: Final = "***"

# As the standard has it, up to the last @ of the authority; else with a password that
# holds a slash and the like, as keys of S3 do: `user:` before what is no port. Both are
# bounded, so that no text takes long.
_IN_URL: Final = re.compile(
    r"://(?P<info>[^\s/?#]{0,1000}|[^\s/?#:@]{0,1000}:(?![0-9]*(?:[/?#\s]|$))\S{0,1000})@"
)
_BARE: Final = re.compile(
    r"(?<![^\s,'\"=])(?P<info>[^\s:/,@'\"]{1,200}:(?!//)[^\s,@]{1,200})@(?=[\w\[])"
)
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,20}\Z")
_CONTAINERS: Final = frozenset({"abfs", "abfss", "wasb", "wasbs"})
"""Schemes whose URLs are ``abfs://container@account.host/folder``."""


def mask_userinfo(text: str) -> str:
    """``text`` with the credentials of every URL in it masked.

    For whatever is shown: values, messages, lines of a log.
    """
    return _IN_URL.sub(_masked, text)


def mask_value(text: str) -> str:
    """The value of an option as it may be shown: also ``user:password@host`` alone."""
    return _BARE.sub(_masked, mask_userinfo(text))


def userinfo_secrets(text: str) -> Iterator[str]:
    """What has to be masked wherever it turns up: credentials within a value."""
    for pattern in (_IN_URL, _BARE):
        for match in pattern.finditer(text):
            if not _is_container(match):
                info = match["info"]
                password = info.partition(":")[2]
                yield from {info, unquote(info), password, unquote(password)} - {""}


def _masked(match: re.Match[str]) -> str:
    whole, info = match[0], match["info"]
    return whole if _is_container(match) else whole.replace(info, MASK, 1)


def _is_container(match: re.Match[str]) -> bool:
    if ":" in match["info"] or match.re is _BARE:
        return not match["info"]
    before = match.string[max(0, match.start() - 21) : match.start()]
    scheme = _SCHEME.search(before)
    named = scheme is not None and scheme[0].lower() in _CONTAINERS
    return named or not match["info"]
