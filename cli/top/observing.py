"""What ``top`` shows: streams, groups and pipelines at one moment, and their rates."""

from __future__ import annotations

import json
import math
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, replace
from functools import partial
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Final, final

from streamfactory.spi import ConfigError, Unsupported
from streamfactory.spi.masking import mask_userinfo
from streamfactory.ui.catalogue import catalogue
from streamfactory.ui.lookups import OVERDUE, Lookups
from streamfactory.ui.pipelines import pipelines, progress
from streamfactory.ui.streams import lags, partitions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from streamfactory.ui.lookups import Answer

_MOST_BYTES: Final = 64 << 20
"""Of the statistics of one process."""
_SECONDS: Final = 2.0
"""For the look-ups of one frame, and for each wait of a request."""
_CHUNK: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a frame."""

    at: float
    """When it was found, by the monotonic clock."""

    kind: str
    """``stream``, ``group``, ``pipeline``; of a process also ``reader``, ``writer`` and
    ``spool``; ``process`` for one that cannot be reached."""
    name: str
    stream: str
    """The stream that a group or pipeline reads, or the process; empty for streams."""
    total: float | None = None
    """What the rate is computed from: offsets, or rows of a process."""
    lag: int | None = None
    losses: int | None = None
    dead_letters: int | None = None
    commit_age: float | None = None
    """Seconds since the last commit."""
    state: str = "ok"
    """``ok``, ``pending``, or why there are no values."""
    rate: float | None = None
    """Per second, since the frame before."""

    @property
    def key(self) -> tuple[str, str, str]:
        """What identifies it in another frame."""
        return self.kind, self.name, self.stream


@dataclass(frozen=True, slots=True)
class Frame:
    """All lines of one moment."""

    rows: tuple[Row, ...]

    def after(self, before: Frame) -> Frame:
        """This frame with the rates since another one."""
        earlier = {row.key: row for row in before.rows}
        rates = [_rate(earlier.get(row.key), row) for row in self.rows]
        pairs = zip(self.rows, rates, strict=True)
        return Frame(tuple(replace(row, rate=rate) for row, rate in pairs))


def _rate(before: Row | None, now: Row) -> float | None:
    """Per second; None if unknown, or if counting began again in between."""
    if before is None or before.total is None or now.total is None:
        return None
    if now.total < before.total or now.at <= before.at:
        return None
    return (now.total - before.total) / (now.at - before.at)


@final
class CatalogueObserver:
    """Observes the streams of the catalogue, their groups, and pipelines.

    Args:
        files: Pipelines besides those beside the catalogue.
    """

    def __init__(self, files: Sequence[Path] = ()) -> None:
        self._files = files
        self._lookups = Lookups(wait=_SECONDS, fresh=0)

    def observe(self) -> Iterator[Row]:
        """The lines of this moment; what does not answer is ``pending``.

        Raises:
            ConfigError: config; the folder of the catalogue cannot be read.
        """
        streams, files = catalogue().names(), pipelines(self._files)
        wanted: dict[tuple[str, str], Callable[[], Any]] = {}
        for name in streams:
            wanted["partitions", name] = partial(partitions, name)
            wanted["lags", name] = partial(lags, name)
        for path in files.values():
            wanted["lags", str(path)] = partial(lags, str(path))
            wanted["progress", str(path)] = partial(progress, path)
        answers = self._lookups.ask_all(wanted)
        for name in streams:
            yield _stream(name, answers["partitions", name])
            found = answers["lags", name]
            for lag in found.value or ():
                yield _position(lag, found)
        for name, path in files.items():
            yield _pipeline(
                name, answers["lags", str(path)], answers["progress", str(path)]
            )


def _stream(name: str, answer: Answer) -> Row:
    latest = None if answer.value is None else answer.value["latest"]
    return Row(_found(answer), "stream", name, "", latest, state=_state(answer))


def _position(lag: dict[str, Any], answer: Answer) -> Row:
    offsets = sum(one["offset"] for one in lag["partitions"])
    kind, name, stream = lag["kind"], lag["name"], lag["stream"]
    return Row(_found(answer), kind, name, stream, offsets, lag["behind"])


def _pipeline(name: str, lag: Answer, found: Answer) -> Row:
    row = Row(_found(lag), "pipeline", name, "", state=_state(lag))
    if lag.value:
        row = replace(_position(lag.value[0], lag), name=name, state=_state(lag))
    if found.value is None or found.value["query"] is None:
        return row
    letters = [one["dead_letters"] for one in found.value["history"]]
    known = [number for number in letters if number is not None]
    return replace(
        row,
        commit_age=found.value["query"]["age_seconds"],
        dead_letters=sum(known) if known else None,
    )


def _found(answer: Answer) -> float:
    return time.monotonic() - (answer.age or 0.0)


def _state(answer: Answer) -> str:
    if answer.error is not None:
        code = str(answer.error["error"])
        return "not looked up" if code == Unsupported.code else code
    return "pending" if answer.value is None else "ok"


@final
class ProcessObserver:
    """Observes a process by its endpoint of metrics.

    Args:
        url: Of the endpoint, with or without ``/metrics``.

    Raises:
        ConfigError: config; it is no URL of HTTP.
    """

    def __init__(self, url: str) -> None:
        if not url.startswith(("http://", "https://")):
            msg = f"{mask_userinfo(url)!r} is no address of an endpoint of metrics"
            raise ConfigError(msg, remedy="give its URL: http://127.0.0.1:9815")
        base = url.removesuffix("/").removesuffix("/metrics")
        self._url, self._shown = f"{base}/statistics", mask_userinfo(base)
        self._lookups = Lookups(wait=_SECONDS, fresh=0)

    def observe(self) -> Iterator[Row]:
        """The lines of this moment; one if the process does not answer in time."""
        answer = self._lookups.ask(self._url, self._look)
        # An older answer is no line of this moment.
        if answer.age is None or answer.age >= _SECONDS:
            yield self._failed("timed out")
        else:
            yield from answer.value

    def _look(self) -> list[Row]:
        try:
            return list(self._rows(_Samples(self._read())))
        except _FAILURES as error:
            return [self._failed(_why(error))]

    def _failed(self, why: str) -> Row:
        return Row(time.monotonic(), "process", self._shown, "", state=why)

    def _rows(self, samples: _Samples) -> Iterator[Row]:
        now = time.monotonic()
        where = self._shown
        for name in samples.names("read.rows", "stream"):
            yield Row(
                now,
                "reader",
                name,
                where,
                samples.sum("read.rows", stream=name),
                samples.whole("read.lag.offsets", stream=name),
                samples.whole("read.losses", stream=name),
                samples.whole("read.dead.letters", stream=name),
            )
        for name in samples.names("write.rows", "stream"):
            written = samples.sum("write.rows", stream=name)
            yield Row(now, "writer", name, where, written)
        for name in samples.names("spool.rows", "stream"):
            failed = samples.sum("spool.failed", stream=name)
            blocked = samples.sum("spool.blocked", stream=name)
            yield Row(
                now,
                "spool",
                name,
                where,
                samples.sum("spool.rows", stream=name),
                losses=samples.whole("spool.losses", stream=name),
                commit_age=samples.sum("spool.idle.seconds", stream=name),
                state="failed" if failed else "blocked" if blocked else "ok",
            )
        for name in samples.names("pipeline.running", "pipeline"):
            yield _running(now, samples, name, where)

    def _read(self) -> Any:
        request = urllib.request.Request(self._url)  # noqa: S310 - HTTP, checked above
        deadline, content = time.monotonic() + OVERDUE, bytearray()
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310
            while part := answer.read1(_CHUNK):
                content += part
                if len(content) > _MOST_BYTES:
                    msg = "the statistics are too large"
                    raise ValueError(msg)
                if time.monotonic() > deadline:
                    msg = "timed out"
                    raise TimeoutError(msg)
        return json.loads(content)


def _running(now: float, samples: _Samples, name: str, where: str) -> Row:
    trigger = samples.sum("pipeline.last.trigger.seconds", pipeline=name)
    failures = samples.sum("pipeline.failures", pipeline=name)
    running = samples.sum("pipeline.running", pipeline=name)
    return Row(
        now,
        "pipeline",
        name,
        where,
        samples.sum("pipeline.rows", pipeline=name),
        samples.whole("pipeline.lag.offsets", pipeline=name),
        commit_age=None if trigger is None else max(0.0, time.time() - trigger),
        state="running" if running else "failed" if failures else "ended",
    )


class _Samples:
    """Values of the metrics of a process."""

    def __init__(self, plain: Any) -> None:
        self._found = [
            (str(one["name"]), _texts(one["labels"]), float(one["value"]))
            for one in plain
        ]

    def names(self, metric: str, label: str) -> list[str]:
        """The values of a label."""
        return sorted(
            {labels[label] for name, labels, _ in self._found if name == metric}
        )

    def sum(self, metric: str, **labels: str) -> float | None:
        """The sum of a metric; None if there is no sample of it."""
        values = [
            value
            for name, found, value in self._found
            if name == metric and labels.items() <= found.items()
        ]
        if not values:
            return None
        total = sum(values)
        if not math.isfinite(total):
            msg = f"{metric} is {total}"
            raise ValueError(msg)
        return total

    def whole(self, metric: str, **labels: str) -> int | None:
        """As `sum`, a whole number."""
        found = self.sum(metric, **labels)
        return None if found is None else round(found)


def _texts(labels: Any) -> dict[str, str]:
    return {str(name): str(value) for name, value in labels.items()}


_FAILURES: Final = (
    OSError,
    HTTPException,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    RecursionError,
    OverflowError,
)
"""Of a request, or because of an answer that is no statistics."""


def _why(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"status {error.code}"
    if not isinstance(error, OSError):
        return "no statistics"
    reason = getattr(error, "reason", error)
    return getattr(reason, "strerror", None) or str(reason)


def observe(observers: Iterable[CatalogueObserver | ProcessObserver]) -> Frame:
    """The frame of this moment, without rates."""
    return Frame(tuple(row for one in observers for row in one.observe()))
