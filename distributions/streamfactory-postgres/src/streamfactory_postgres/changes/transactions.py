"""Numbers the changes of a table within their transactions."""

from __future__ import annotations

from streamfactory_postgres.changes.messages import Begin, Commit, Message, Relation
from streamfactory_postgres.changes.numbering import begin_run, offset_of


class Transactions:
    """Gives changes their offsets: the same in every session that receives them.

    Args:
        oid: Of the table; changes of others have no number.
    """

    def __init__(self, oid: int) -> None:
        self._oid = oid
        self._number = 0
        self.is_open = False
        """Whether a transaction has begun, and its commit has not arrived."""
        self.lsn = 0
        """Where the record of its commit begins."""
        self.time = 0
        """Of its commit, in microseconds since 1970, UTC."""
        self.relation: Relation | None = None
        """Columns of the changes that follow."""

    def follow(self, message: Message) -> bool:
        """Take notice of what is no change.

        Returns:
            Whether the columns of the table are others from here on.
        """
        if isinstance(message, Begin):
            self.is_open, self._number = True, 0
            self.lsn, self.time = message.lsn, message.time
        elif isinstance(message, Commit):
            self.is_open = False
        elif isinstance(message, Relation) and message.oid == self._oid:
            if self.relation == message:
                return False
            self.relation = message
            self.begin_run()
            return True
        return False

    def number(self) -> int:
        """The offset of the next change."""
        offset = offset_of(self.lsn, self._number)
        self._number += 1
        return offset

    def begin_run(self) -> None:
        """The next change shares its offset with none before it."""
        self._number = begin_run(self._number)
