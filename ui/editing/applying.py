"""Makes the changes of files, one at a time, and keeps what would undo the last one."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, final

from streamfactory.ui import catalogue
from streamfactory.ui.editing.drafts import folder_of
from streamfactory.ui.shown import ShownEdit

if TYPE_CHECKING:
    from streamfactory.ui.editing.files import Folder


@final
class Edits:
    """The changes of one server. Thread-safe.

    Args:
        allowed: Whether clients with the token may change files.
    """

    def __init__(self, *, allowed: bool = False) -> None:
        self.allowed = allowed
        self._lock = threading.Lock()
        self._undo: ShownEdit | None = None

    @property
    def undo(self) -> ShownEdit | None:
        """What would undo the last change; None if nothing was changed."""
        return self._undo

    def apply(self, change: ShownEdit) -> str:
        """Make a change: a file is created, replaced, renamed or deleted.

        Returns:
            The digest of the file after it; empty if it is deleted.

        Raises:
            Changed: config; the file is not as it was when the change was shown.
            ConfigError: config; it cannot be written.
        """
        folder = folder_of(change.kind)
        with self._lock:
            try:
                digest = _write(folder, change)
            finally:
                catalogue.forget()
            self._undo = ShownEdit(
                change.kind,
                change.former or change.name,
                change.name if change.new else "",
                change.new,
                change.old,
                change.after,
                change.before,
                digest,
            )
        return digest


def _write(folder: Folder, change: ShownEdit) -> str:
    """Make the change; the digest of the file after it, empty if it is deleted."""
    if not change.new:
        folder.delete(change.old, change.digest)
        return ""
    if not change.old:
        return folder.create(change.new, change.after)
    if change.old == change.new:
        return folder.replace(change.new, change.after, change.digest)
    return folder.rename(change.old, change.new, change.after, change.digest)
