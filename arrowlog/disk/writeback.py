"""Files that are synced in the background while they are written."""

from __future__ import annotations

import io
import os
import threading
from typing import Any, Final, final

_EVERY: Final = 8 << 20
"""Bytes between two background syncs."""


@final
class WriteBackFile(io.FileIO):
    """A raw file that syncs itself from another thread as it grows.

    The sync at the end of a large file then waits for the last bytes only. It is still
    required: background syncs guarantee nothing. One thread writes and closes.

    Args:
        file: A descriptor, closed with this object.
    """

    def __init__(self, file: int) -> None:
        super().__init__(file, "wb")
        self._unsynced = 0
        self._syncing: threading.Thread | None = None
        self._failure: OSError | None = None

    def write(self, data: Any, /) -> int:
        """Write some of the bytes; their number."""
        count = super().write(data)
        self._unsynced += count
        if self._unsynced >= _EVERY and not self._is_syncing():
            self._unsynced = 0
            self._syncing = threading.Thread(
                target=self._sync, name="write-back", daemon=True
            )
            self._syncing.start()
        return count

    def close(self) -> None:
        """Close the descriptor.

        Raises:
            OSError: A sync failed. The system reports it once: a later sync of the file
                would succeed.
        """
        if self._syncing is not None:
            self._syncing.join()  # the number of a closed descriptor is reused
            self._syncing = None
        super().close()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _is_syncing(self) -> bool:
        return self._syncing is not None and self._syncing.is_alive()

    def _sync(self) -> None:
        try:
            os.fsync(self.fileno())
        except OSError as error:
            self._failure = error
