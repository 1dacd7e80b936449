"""Access control: bearer tokens and permissions by topic."""

from __future__ import annotations

import logging
from enum import Enum
from typing import TYPE_CHECKING, Final

import pyarrow.flight as fl

from streamfactory.backends.flight.protocol.failures import to_status
from streamfactory.spi import NotAuthorized
from streamfactory.spi.users import UserFile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_logger = logging.getLogger("streamfactory.flight")

MIDDLEWARE: Final = "access"
_MOST_AGENT: Final = 100
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


_RIGHTS: Final = [one.value for one in Right]
_TABLES: Final = {"topics": _RIGHTS, "groups": _RIGHTS}


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
        self._users = UserFile(path, _TABLES)

    def user_of(self, token: str) -> str:
        """The user of a token; every token is compared, in constant time.

        Raises:
            NotAuthorized: permanent; no user has it.
        """
        found = self._users.user_of(token)
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
        table = "groups" if groups else "topics"
        return self._users.allows(user, table, name, right.value)


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
