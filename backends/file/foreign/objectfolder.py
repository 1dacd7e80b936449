"""The objects below a prefix of an object store as one stream.

They are found by listing, and where there is a queue of events by those: listing then
finds what events do not report. Requests cost time and money, so a reader of what is
listed already makes none but for rows.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from streamfactory.backends.file.foreign.folder import Folder

if TYPE_CHECKING:
    from streamfactory.backends.file.foreign.arrivals import Arrivals
    from streamfactory.backends.file.foreign.layout import Settings
    from streamfactory.backends.file.foreign.manifest import Manifest
    from streamfactory.backends.file.foreign.places import Place

_LISTING: Final = 5.0
_LISTING_BESIDE_EVENTS: Final = 300.0
"""Seconds between two listings, unless ``list.interval.millis`` has them."""
_POLL: Final = 1.0
"""Seconds between two looks into an empty queue."""
_RECEIVED: Final = 100
"""Requests for messages of one search: a queue may fill as fast as it is read."""


class ObjectFolder(Folder):
    """The objects below a prefix.

    Args:
        settings: The options.
        place: The prefix; closed with the layout.
        manifest: The order of the objects; closed with the layout.
        arrivals: The queue of events, if there is one; closed with the layout.
    """

    def __init__(
        self,
        settings: Settings,
        place: Place,
        manifest: Manifest,
        arrivals: Arrivals | None,
    ) -> None:
        super().__init__(settings, place, manifest)
        self._arrivals = arrivals
        default = _LISTING if arrivals is None else _LISTING_BESIDE_EVENTS
        self._pause = default if settings.listing is None else settings.listing
        self._refreshed = False
        self._planned = 0
        """Largest end for which the manifest was read."""
        self._next_listing = 0.0

    def refresh(self) -> None:
        """Read the manifest once: `discover` reads what other processes list."""
        if not self._refreshed:
            self._read_manifest()

    def discover(self, *, eager: bool = False, end: int | None = None) -> None:
        if end is not None and end > self._planned:
            # A task of Spark: the files are in the manifest, by its driver.
            self._planned = end
            self._read_manifest()
            if end <= self.latest:
                return
        now = time.monotonic()
        if not eager and now < self._not_before:
            return
        self._read_manifest()
        if now >= self._next_listing or (eager and self._arrivals is None):
            self._search()
            self._next_listing = time.monotonic() + self._pause
        if self._arrivals is not None:
            self._receive(self._arrivals)
        pause = self._pause if self._arrivals is None else _POLL
        self._not_before = time.monotonic() + pause

    def close(self) -> None:
        super().close()
        if self._arrivals is not None:
            self._arrivals.close()

    def _read_manifest(self) -> None:
        super().refresh()
        self._refreshed = True

    def _receive(self, arrivals: Arrivals) -> None:
        """List the objects of events; an event is removed when its object is listed.

        Messages that are no events stay in the queue, and do not end the search: events
        may be behind them.
        """
        for _ in range(_RECEIVED):
            messages = arrivals.receive()
            if not messages:
                return
            names = {name for message in messages for name in message.names or ()}
            self._list(dict.fromkeys(filter(self._is_new, names)))
            arrivals.remove([m for m in messages if m.names is not None])

    def _is_new(self, name: str) -> bool:
        return self._belongs(name) and name not in self._manifest.names
