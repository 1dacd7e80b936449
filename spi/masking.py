"""Credentials within values: the part of a URL before the ``@`` of its host.

Options that are declared secret are masked as a whole. Any other value may be a URL,
whose credentials are masked wherever the value is shown.
"""

from __future__ import annotations

import re
from itertools import takewhile
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MASK: Final = "***"
_BEGINNING: Final = 16
"""Characters by which the beginning of a secret is recognised."""

# Either as in RFC 3986, up to the last @ of the authority; or with a password that
# contains a slash, as S3 keys do: `user:` followed by something that is not a port.
# Both are bounded, so that no text takes long to match.
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
    """Return ``text`` with the credentials of every URL masked.

    For all that is shown: values, messages, log lines.
    """
    return _IN_URL.sub(_masked, text)


def mask_value(text: str) -> str:
    """Return an option's value, masked.

    Also masks ``user:password@host`` without URL.
    """
    return _BARE.sub(_masked, mask_userinfo(text))


def mask_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return ``text`` with secrets masked, also where only a beginning is shown.

    Messages quote long values up to some length.
    """
    known = sorted(secrets, key=len, reverse=True)
    for secret in known:
        text = text.replace(secret, MASK)
    for secret in known:
        if len(secret) > _BEGINNING:
            text = _without_beginnings(text, secret)
    return text


def _without_beginnings(text: str, secret: str) -> str:
    head, at = secret[:_BEGINNING], 0
    while (at := text.find(head, at)) >= 0:
        pairs = zip(secret, text[at : at + len(secret)], strict=False)
        shown = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        text = f"{text[:at]}{MASK}{text[at + shown :]}"
        at += len(MASK)
    return text


def userinfo_secrets(text: str) -> Iterator[str]:
    """Yield the credentials within a value, which must be masked everywhere."""
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
