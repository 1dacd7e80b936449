"""A file of users: their bearer tokens, and what they may do by patterns of names.

Servers use it: each has tables of patterns, and rights within them. The file is read
again when it changes. A version that cannot be used is reported, and the previous one
stays in force.
"""

from __future__ import annotations

import fnmatch
import hashlib
import hmac
import logging
import re
import threading
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from streamfactory.spi.errors import ConfigError, StreamError
from streamfactory.spi.files import read_file
from streamfactory.spi.references import resolve

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    Patterns = Sequence[tuple[str, Mapping[str, frozenset[str]]]]
    """Patterns with the users of each right, in the order of the file."""

LEAST_TOKEN: Final = 16
"""Minimum characters of a token: shorter ones can be guessed."""
_OTHER_MEANINGS: Final = ("", "*", "@", "(")
"""First characters of what is no name: everybody, groups, users without a name."""
ANYBODY: Final = "*"
"""In a list of users: each user who is known."""
_CHECK_SECONDS: Final = 1.0
"""Interval at which the file is checked for changes."""
_MOST_BYTES: Final = 1 << 20
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+\\-]{0,99}")

_logger = logging.getLogger("streamfactory.users")


def is_user_name(text: str) -> bool:
    """Whether a text of outside can be the name of a user, or of a group of users."""
    return _NAME.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class _Rules:
    digests: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """Of the tokens, by name of the user."""
    tables: Mapping[str, Patterns] = field(default_factory=dict)


@final
class UserFile:
    """The users and rights of a file. Thread-safe.

    Args:
        path: TOML with ``[tokens]`` (user = "${env:NAME}" or "${file:PATH}"), and
            tables ``[TABLE."PATTERN"]`` with a list of users for each right.
        tables: The rights that each table may have.
        others: Whether users without a token, and groups as ``@GROUP``, may be named:
            somebody else says who they are.

    Raises:
        ConfigError: config; the file cannot be used.
    """

    def __init__(
        self, path: str, tables: Mapping[str, Collection[str]], *, others: bool = False
    ) -> None:
        self._path, self._tables, self._others = path, tables, others
        self._lock = threading.Lock()
        self._seen = self._stamp()
        self._checked = time.monotonic()
        self._rules = self._read()

    def user_of(self, token: str) -> str | None:
        """The user of a token; every token is compared, in constant time."""
        given, found = digest_of(token), None
        for user, known in self._current().digests.items():
            if hmac.compare_digest(known, given):
                found = user
        return found

    def has(self, user: str, digest: bytes) -> bool:
        """Whether a user still has the token of a digest."""
        return hmac.compare_digest(self._current().digests.get(user, b""), digest)

    def allows(
        self, user: str, table: str, name: str, right: str, groups: Collection[str] = ()
    ) -> bool:
        """Whether some pattern that matches a name gives a right.

        Args:
            user: The user.
            table: The table of the file.
            name: What the right is for.
            right: The right.
            groups: The groups of the user, if somebody else says who users are.
        """
        return any(
            fnmatch.fnmatchcase(name, pattern)
            for pattern in self.patterns(user, table, right, groups)
        )

    def patterns(
        self, user: str, table: str, right: str, groups: Collection[str] = ()
    ) -> list[str]:
        """The patterns that give a user a right."""
        names = {user, ANYBODY, *(f"@{one}" for one in groups)}
        return [
            pattern
            for pattern, rights in self._current().tables[table]
            if not names.isdisjoint(rights.get(right, ()))
        ]

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
            self._rules = self._read()
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

    def _read(self) -> _Rules:
        try:
            plain = tomllib.loads(read_file(self._path, _MOST_BYTES).decode())
            return self._parsed(plain)
        except (OSError, ValueError, RecursionError, StreamError) as error:
            msg = f"access.file {self._path!r} cannot be used: {error}"
            raise ConfigError(msg) from None

    def _parsed(self, plain: Mapping[str, Any]) -> _Rules:
        if unknown := plain.keys() - {"tokens", *self._tables}:
            expected = f"tokens and {', '.join(self._tables)}"
            msg = f"unknown table {min(unknown)!r}; expected {expected}"
            raise ValueError(msg)
        digests: dict[str, bytes] = {}
        for user, reference in _table(plain, "tokens").items():
            if not user.isprintable() or user[:1] in _OTHER_MEANINGS:
                msg = f"{user!r} is no name of a user"
                raise ValueError(msg)
            token = resolve(reference).strip() if isinstance(reference, str) else ""
            if len(token) < LEAST_TOKEN:
                msg = f"the token of {user!r} has fewer than {LEAST_TOKEN} characters"
                raise ValueError(msg)
            if (digest := digest_of(token)) in digests.values():
                msg = f"the token of {user!r} is that of another user"
                raise ValueError(msg)
            digests[user] = digest
        return _Rules(
            digests,
            {one: self._patterns(plain, one, digests.keys()) for one in self._tables},
        )

    def _patterns(
        self, plain: Mapping[str, Any], table: str, known: Collection[str]
    ) -> Patterns:
        """The patterns of one table."""
        found = []
        for pattern in (patterns := _table(plain, table)):
            place = f"{table}.{pattern!r}"
            rights: dict[str, frozenset[str]] = {}
            for right, users in _table(patterns, pattern, place).items():
                if right not in self._tables[table]:
                    expected = ", ".join(self._tables[table])
                    msg = f"{place}: {right!r} is no right; expected {expected}"
                    raise ValueError(msg)
                if not isinstance(users, list) or not all(
                    isinstance(one, str) for one in users
                ):
                    msg = f"{place}.{right} is not a list of users"
                    raise ValueError(msg)
                for user in users:
                    self._check_user(user, known, f"{place}.{right}")
                rights[right] = frozenset(users)
            found.append((pattern, rights))
        return found

    def _check_user(self, user: str, known: Collection[str], place: str) -> None:
        if user == ANYBODY or user in known:
            return
        if not self._others:
            msg = f"{place}: {user!r} has no token"
            raise ValueError(msg)
        if not is_user_name(user.removeprefix("@")):
            msg = f"{place}: {user!r} is no name of a user"
            raise ValueError(msg)


def _table(plain: Mapping[str, Any], key: str, place: str = "") -> Mapping[str, Any]:
    """A table of the file; empty if there is none."""
    found = plain.get(key, {})
    if not isinstance(found, dict):
        msg = f"{place or key} is no table"
        raise ValueError(msg)  # noqa: TRY004 - a mistake in the file
    return found


def digest_of(token: str) -> bytes:
    """What is kept of a token, and compared: its length is not seen in the time."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
