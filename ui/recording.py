"""Lag and rate over time: a thread looks them up regularly while the pages are served.

The history begins when the pages are first served, and has the last `POINTS` points.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, final

from streamfactory.spi import StreamError
from streamfactory.ui.catalogue import catalogue
from streamfactory.ui.pipelines import pipelines
from streamfactory.ui.streams import lags, partitions
from streamfactory.wiring.core.closing import Closing

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence
    from pathlib import Path

    from streamfactory.ui.lookups import Lookups

POINTS: Final = 480
MOST_SERIES: Final = 1000


@dataclass(frozen=True, slots=True)
class Point:
    """What was known at one moment."""

    at: float
    """Seconds since 1970."""
    lag: int | None
    offsets: int | None
    """Sum of the offsets of the position, or of the latest offsets of a stream."""


def rates(points: Sequence[Point]) -> list[tuple[float, float | None]]:
    """Offsets per second between points; None where a sum fell, or is unknown."""
    found: list[tuple[float, float | None]] = []
    for old, new in pairwise(points):
        rate = None
        if old.offsets is not None and new.offsets is not None and new.at > old.at:
            moved = new.offsets - old.offsets
            rate = moved / (new.at - old.at) if moved >= 0 else None
        found.append((new.at, rate))
    return found


@final
class Recorder(Closing):
    """Records series of points. Thread-safe; its thread starts with `start`.

    Args:
        lookups: Where results are asked for.
        every: Seconds between two points.
        files: Pipelines besides those of the catalogue.
    """

    def __init__(
        self, lookups: Lookups, every: float, files: Sequence[Path] = ()
    ) -> None:
        self._lookups, self._every, self._files = lookups, every, files
        self._lock = threading.Lock()
        self._series: dict[Hashable, deque[Point]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)

    def start(self) -> None:
        """Begin to record."""
        self._thread.start()

    def points(self, key: Hashable) -> list[Point]:
        """The points of ``("stream", name)``, or ``(kind, name, stream)``."""
        with self._lock:
            return list(self._series.get(key, ()))

    def close(self) -> None:
        """Stop; twice is allowed."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._record()
            self._stop.wait(self._every)

    def _record(self) -> None:
        try:
            streams = catalogue().names()
            files = list(pipelines(self._files).values())
        except StreamError:
            return  # the overview shows why
        wanted: dict[tuple[str, str], Callable[[], Any]] = {
            ("partitions", name): partial(partitions, name) for name in streams
        }
        targets = [*streams, *map(str, files)]
        wanted |= {("lags", target): partial(lags, target) for target in targets}
        for (kind, name), answer in self._lookups.ask_all(wanted, later=True).items():
            if answer.value is None or answer.error is not None or answer.age is None:
                continue
            at = time.time() - answer.age
            if kind == "partitions":
                latest = answer.value["latest"]
                self._add(("stream", name), Point(at, None, latest))
            else:
                for lag in answer.value:
                    self._add_lag(at, lag)

    def _add_lag(self, at: float, lag: dict[str, Any]) -> None:
        offsets = sum(one["offset"] for one in lag["partitions"])
        key = lag["kind"], lag["name"], lag["stream"]
        self._add(key, Point(at, lag["behind"], offsets))

    def _add(self, key: Hashable, point: Point) -> None:
        with self._lock:
            if key not in self._series and len(self._series) >= MOST_SERIES:
                return
            series = self._series.setdefault(key, deque(maxlen=POINTS))
            # An answer that was not looked up again is the same point.
            if not series or point.at - series[-1].at > min(1.0, self._every / 2):
                series.append(point)
