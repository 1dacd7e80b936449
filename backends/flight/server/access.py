"""Access control: bearer tokens and permissions by topic.

The file is read again when it changes. A version that cannot be used is reported and
the previous one stays in force.
"""

from __future__ import annotations

import fnmatch
import hmac
import logging
import threading
import time
import tomllib
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow.flight as fl

from streamfactory.backends.flight.protocol.failures import to_status
from streamfactory.spi import ConfigError, NotAuthorized
from streamfactory.spi.files import read_file
from streamfactory.spi.references import resolve

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

_logger = logging.getLogger("streamfactory.flight")

MIDDLEWARE: Final = "access"
_CHECK_SECONDS: Final = 1.0
"""Interval at which the file is checked for changes."""
_MOST_BYTES: Final = 1 << 20
_MOST_AGENT: Final = 100
_LEAST_TOKEN: Final = 16
"""Minimum characters of a token: shorter ones can be guessed."""
_AUTHENTICATE: Final = (
    "send the header `authorization: Bearer TOKEN` with a token of this server "
    "(streamfactory: stream.flight.token)"
)


class Right(Enum):
    """A permission."""

    READ = "read"
    WRITE = "write"
    """Append rows; create the topic."""
    ADMIN = "admin"
    """All that shortens topics or makes writers forgotten; grow, compact, verify."""


@dataclass(frozen=True, slots=True)
class _Rules:
    tokens: Mapping[str, str] = field(default_factory=dict, repr=False)
    """By name of the user."""
    topics: Sequence[tuple[str, Mapping[Right, frozenset[str]]]] = ()
    """Patterns with the users of each right, in the order of the file."""
    groups: Sequence[tuple[str, Mapping[Right, frozenset[str]]]] = ()
    """The same for groups of readers."""


class Access:
    """The rules of a file. Thread-safe.

    Args:
        path: TOML with ``[tokens]`` (user = "${env:NAME}" or "${file:PATH}"),
            ``[topics."PATTERN"]`` with lists ``read``, ``write`` and ``admin``, and
            ``[groups."PATTERN"]`` with ``read`` and ``write``.

    Raises:
        ConfigError: config; the file cannot be used.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._seen = self._stamp()
        self._checked = time.monotonic()
        self._rules = _read(path)

    def user_of(self, token: str) -> str:
        """The user of a token; every token is compared, in constant time.

        Raises:
            NotAuthorized: permanent; no user has it.
        """
        given, found = token.encode(), None
        for user, known in self._current().tokens.items():
            if hmac.compare_digest(known.encode(), given):
                found = user
        if found is None:
            msg = "the bearer token is unknown"
            raise NotAuthorized(msg, remedy=_AUTHENTICATE)
        return found

    def check(
        self,
        user: str,
        name: str,
        right: Right,
        *,
        groups: bool = False,
        member: str | None = None,
    ) -> None:
        """Refuse what the rules do not allow.

        Args:
            user: The user.
            name: Name of the topic, or of the group of readers.
            right: The required permission.
            groups: Whether the name is a group's.
            member: The member of a commit that needs the right.

        Raises:
            NotAuthorized: permanent.
        """
        if not self.allows(user, name, right, groups=groups):
            kind = "the checkpoints of group" if groups else "topic"
            verb = "administer" if right is Right.ADMIN else right.value
            msg = f"user {user!r} may not {verb} {kind} {name!r}"
            remedy = "ask the operator of the server"
            if member is not None:
                msg += f", which {member!r} of a commit needs"
                remedy += ", or commit without it"
            raise NotAuthorized(msg, remedy=remedy)

    def allows(
        self, user: str, name: str, right: Right, *, groups: bool = False
    ) -> bool:
        """Whether some pattern that matches the name gives the right."""
        rules = self._current()
        return any(
            user in rights.get(right, ()) or "*" in rights.get(right, ())
            for pattern, rights in (rules.groups if groups else rules.topics)
            if fnmatch.fnmatchcase(name, pattern)
        )

    def _current(self) -> _Rules:
        with self._lock:
            now = time.monotonic()
            if now - self._checked >= _CHECK_SECONDS:
                self._checked = now
                self._reload()
            return self._rules

    def _reload(self) -> None:
        stamp = self._stamp()
        if stamp == self._seen:
            return
        self._seen = stamp
        try:
            self._rules = _read(self._path)
        except ConfigError as error:
            _logger.error(  # noqa: TRY400 - a mistake in a file, no defect
                "access.file cannot be used, the previous rules stay in force: %s",
                error,
            )
        else:
            _logger.info("access.file was read again")

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            status = Path(self._path).stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino


class _Authenticated(fl.ServerMiddleware):  # type: ignore[misc]
    """Carries the user of a call."""

    def __init__(self, user: str) -> None:
        self.user = user


class Authentication(fl.ServerMiddlewareFactory):  # type: ignore[misc]
    """Refuses calls without a known bearer token, before anything else is processed."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def start_call(
        self, info: fl.CallInfo, headers: Mapping[str, Sequence[str | bytes]]
    ) -> fl.ServerMiddleware:
        given = headers.get("authorization") or headers.get("Authorization") or [""]
        value = given[0]
        text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        scheme, _, token = text.partition(" ")
        try:
            if scheme.lower() != "bearer":
                msg = "the call has no bearer token"
                raise NotAuthorized(msg, remedy=_AUTHENTICATE)
            return _Authenticated(self._access.user_of(token.strip()))
        except NotAuthorized as error:
            # pyarrow gives a middleware the method and headers, not the address.
            agent = (headers.get("user-agent") or [""])[0]
            _logger.warning(
                "a call of %s was refused, by a client that calls itself %r: %s",
                info.method.name,
                str(agent)[:_MOST_AGENT],
                error.what,
            )
            raise to_status(error, fl.FlightUnauthenticatedError) from None


def _read(path: str) -> _Rules:
    """The rules of a file.

    Raises:
        ConfigError: config.
    """
    try:
        plain = tomllib.loads(read_file(path, _MOST_BYTES).decode())
        return _rules(plain)
    except (OSError, ValueError, RecursionError) as error:
        msg = f"access.file {path!r} cannot be used: {error}"
        raise ConfigError(msg) from None


def _rules(plain: Mapping[str, Any]) -> _Rules:
    if unknown := plain.keys() - {"tokens", "topics", "groups"}:
        msg = f"unknown table {min(unknown)!r}; expected tokens, topics and groups"
        raise ValueError(msg)
    tokens = {}
    for user, reference in plain.get("tokens", {}).items():
        token = resolve(reference) if isinstance(reference, str) else ""
        if len(token) < _LEAST_TOKEN:
            msg = f"the token of {user!r} has fewer than {_LEAST_TOKEN} characters"
            raise ValueError(msg)
        tokens[user] = token
    users = tokens.keys()
    return _Rules(
        tokens, _patterns(plain, "topics", users), _patterns(plain, "groups", users)
    )


def _patterns(
    plain: Mapping[str, Any], table: str, known: Collection[str]
) -> Sequence[tuple[str, Mapping[Right, frozenset[str]]]]:
    """The patterns of one table."""
    found = []
    for pattern, given in plain.get(table, {}).items():
        rights: dict[Right, frozenset[str]] = {}
        for name, users in given.items():
            if not isinstance(users, list) or not all(
                isinstance(u, str) for u in users
            ):
                msg = f"{table}.{pattern!r}.{name} is not a list of users"
                raise ValueError(msg)
            if strange := set(users) - {*known, "*"}:
                msg = f"{table}.{pattern!r}.{name}: {min(strange)!r} has no token"
                raise ValueError(msg)
            rights[Right(name)] = frozenset(users)
        found.append((pattern, rights))
    return found
