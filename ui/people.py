"""Users of the pages, and their rights: by name, for patterns of streams and pipelines.

`rights` has what each route needs, and checks requests.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from streamfactory.spi.users import UserFile


class Right(Enum):
    """What a user may do. Each right includes `READ`."""

    READ = "read"
    """See definitions, partitions, lag, checkpoints: nothing that is in a row."""
    VALUES = "values"
    """See rows, and what may have values of rows in it."""
    OPERATE = "operate"
    """Move positions, replay dead letters, start and stop pipelines."""
    EDIT = "edit"
    """Change definitions and topics, and write messages by hand."""


STREAMS: Final = "streams"
PIPELINES: Final = "pipelines"
TABLES: Final = {kind: [one.value for one in Right] for kind in (STREAMS, PIPELINES)}
"""Of the file of users."""
EVERYTHING: Final = "*"
"""The name of all streams, or of all pipelines."""
EVERY_RIGHT: Final = frozenset(Right)


@final
@dataclass(frozen=True, slots=True)
class User:
    """Somebody who sent a request."""

    name: str
    groups: frozenset[str] = frozenset()
    """Of which a trusted proxy says that the user belongs to them."""
    everywhere: frozenset[Right] = frozenset()
    """Rights for all streams and pipelines, without a file of users."""


ANYBODY: Final = User("(anybody)", everywhere=frozenset({Right.READ, Right.VALUES}))
"""A client of loopback that is not logged in, where reading requires no log-in."""
HOLDER: Final = User("(token)", everywhere=EVERY_RIGHT)
"""Who gave the one token of the settings, which stands for no name."""


@final
@dataclass(frozen=True, slots=True)
class Rights:
    """The rights of users. Thread-safe."""

    file: UserFile | None = field(default=None, repr=False)

    def may(self, user: User, right: Right, kind: str, name: str) -> bool:
        """Whether a user has a right.

        Args:
            user: The user.
            right: The right.
            kind: `STREAMS` or `PIPELINES`.
            name: The name, or `EVERYTHING`.
        """
        if not user.everywhere.isdisjoint(_including(right)):
            return True
        if self.file is None:
            return False
        if name == EVERYTHING:
            return EVERYTHING in self._patterns(user, right, kind)
        return any(
            self.file.allows(user.name, kind, name, one.value, user.groups)
            for one in _including(right)
        )

    def may_some(self, user: User, right: Right) -> bool:
        """Whether a user has a right for anything at all."""
        return not user.everywhere.isdisjoint(_including(right)) or any(
            self._patterns(user, right, kind) for kind in TABLES
        )

    def _patterns(self, user: User, right: Right, kind: str) -> list[str]:
        if self.file is None:
            return []
        return [
            pattern
            for one in _including(right)
            for pattern in self.file.patterns(user.name, kind, one.value, user.groups)
        ]


def _including(right: Right) -> frozenset[Right]:
    """The rights that include a right."""
    return EVERY_RIGHT if right is Right.READ else frozenset({right})
