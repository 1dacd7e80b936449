"""The log of a process as JSON lines, and the limit on repeated warnings.

Used by the command line on the driver, and by Python workers of Spark.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, final

from streamfactory.spi import StreamError
from streamfactory.spi.masking import mask_userinfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOG_FORMAT: Final = "STREAMFACTORY_LOG_FORMAT"
"""Environment variable of Spark's Python workers: ``json`` for JSON lines."""
LOG_FIELDS: Final = (
    "code",
    "stream",
    "pipeline",
    "group",
    "topic",
    "partition",
    "offset",
    "batch",
    "epoch",
    "rows",
)
"""Fields of a line that are known for some records only, in their order."""

_MOST: Final = 10
_PERIOD: Final = 60.0
_PLACES: Final = 10_000
_FEW: Final = 100
_SHARED: Final = 2
"""Parts of the key of a line of the code: its file and number."""
_PLACEHOLDER: Final = re.compile(r"(?:\b(\w+) )?%(?:%|[-+ #0]*\d*(?:\.\d+)?[a-zA-Z])")
"""A placeholder of a message, with the word before it: ``stream %r``."""
_ATTRIBUTES: Final = ("stream", "partition", "offset")
_PLACE: Final = ("stream", "partition", "group", "pipeline", "code")
"""Fields that distinguish warnings of one line of the code."""


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """What a record concerns: stream, partition, offset, batch and others.

    They are read, in this order, from ``extra``; from an error among the arguments; and
    from placeholders that follow the name of a field, as in ``"stream %r: ..."``. None
    is found where a value has no text: a log call never fails.
    """
    try:
        return _fields_of(record)
    except Exception:  # noqa: BLE001 - of an argument of any library
        return {}


def _fields_of(record: logging.LogRecord) -> dict[str, Any]:
    found = dict(_from_message(record))
    arguments = record.args if isinstance(record.args, tuple) else ()
    error = record.exc_info[1] if record.exc_info else None
    for one in (error, *arguments):
        if isinstance(one, StreamError):
            given = {name: getattr(one, name) for name in _ATTRIBUTES}
            found |= {name: value for name, value in given.items() if value is not None}
            found["code"] = one.code
    found |= {name: vars(record)[name] for name in LOG_FIELDS if name in vars(record)}
    return {name: _plain(found[name]) for name in LOG_FIELDS if name in found}


def _from_message(record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
    if not isinstance(record.args, tuple) or not isinstance(record.msg, str):
        return
    matches = [m for m in _PLACEHOLDER.finditer(record.msg) if not m[0].endswith("%%")]
    if len(matches) != len(record.args):
        return
    for match, value in zip(matches, record.args, strict=True):
        if match[1] in LOG_FIELDS:
            yield match[1], value


def message_of(record: logging.LogRecord) -> str:
    """The text of a record; without its arguments where they do not fit to it."""
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - of an argument of any library
        if isinstance(record.msg, str):
            return record.msg
        return f"a message of type {type(record.msg).__name__}, which has no text"


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float | str) else str(value)


def log_line(
    level: str,
    logger: str,
    message: str,
    fields: dict[str, Any],
    *,
    seconds: float | None = None,
) -> dict[str, Any]:
    """One line of the log, as plain values.

    Args:
        level: ``debug``, ``info``, ``warning``, ``error`` or ``critical``.
        logger: Name of the logger.
        message: The text.
        fields: See `LOG_FIELDS`; others are allowed.
        seconds: When it happened, since 1970-01-01 UTC; now by default.
    """
    at = datetime.fromtimestamp(time.time() if seconds is None else seconds, UTC)
    return {
        "time": at.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "level": level,
        "logger": logger,
        "message": message,
        **fields,
    }


@final
class JsonFormatter(logging.Formatter):
    """Formats records as `log_line`, without credentials of URLs."""

    def plain(self, record: logging.LogRecord) -> dict[str, Any]:
        """The line of a record, not masked."""
        fields = fields_of(record)
        suppressed = getattr(record, "suppressed", 0)
        if suppressed:
            fields["suppressed"] = suppressed
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return log_line(
            record.levelname.lower(),
            record.name,
            message_of(record),
            fields,
            seconds=record.created,
        )

    def format(self, record: logging.LogRecord) -> str:
        """The line as JSON."""
        values = {
            key: mask_userinfo(value) if isinstance(value, str) else value
            for key, value in self.plain(record).items()
        }
        return json.dumps(values, ensure_ascii=False)


@final
class RateLimit(logging.Filter):
    """Suppresses warnings that repeat, and counts them.

    Warnings repeat if they come from the same line of the code and concern the same
    stream, partition, group, pipeline and error code. A record with the attribute
    ``audit`` is always shown: it says who changed what. The first record
    after the period has the number of those that were suppressed before it, as its
    attribute ``suppressed``. Thread-safe.

    Args:
        most: Equal warnings in one period.
        period: Seconds.
        clock: Seconds, never decreasing.
        places: Different warnings that are limited separately. Further ones share one
            limit, and one count of suppressed records, for each line of the code.
    """

    def __init__(
        self,
        most: int = _MOST,
        period: float = _PERIOD,
        clock: Callable[[], float] = time.monotonic,
        *,
        places: int = _PLACES,
    ) -> None:
        super().__init__()
        self._most = most
        self._period = period
        self._clock = clock
        self._lock = threading.Lock()
        self._places = places
        self._seen: dict[tuple[Any, ...], _Seen] = {}
        self._forgot = clock()
        self._room = _FEW
        """Number of warnings at which those that did not repeat are forgotten."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is shown."""
        if record.levelno != logging.WARNING or getattr(record, "audit", False):
            return True
        fields = fields_of(record)
        place = (fields.get(name) for name in _PLACE)
        key = (record.pathname, record.lineno, *place)
        with self._lock:
            now = self._clock()
            seen = self._seen.get(key) or self._add(key, now)
            if now - seen.since >= self._period:
                record.suppressed = seen.suppressed
                seen.since, seen.shown, seen.suppressed = now, 0, 0
            if seen.shown >= self._most:
                seen.suppressed += 1
                seen.last = record
                return False
            seen.shown += 1
            return True

    def rest(self) -> list[logging.LogRecord]:
        """The last of each warning that is suppressed now, with their number.

        For the end of the process; they count as shown.
        """
        with self._lock:
            found = []
            for seen in self._seen.values():
                if seen.last is not None and seen.suppressed:
                    seen.last.suppressed = seen.suppressed
                    found.append(seen.last)
                seen.suppressed, seen.last = 0, None
            return found

    def _add(self, key: tuple[Any, ...], now: float) -> _Seen:
        # Not for each new one: there may be many partitions.
        if now - self._forgot >= self._period or len(self._seen) >= self._room:
            self._forget(now)
        if len(self._seen) >= self._places:
            return self._shared(key, now)
        seen = self._seen[key] = _Seen(now)
        return seen

    def _shared(self, key: tuple[Any, ...], now: float) -> _Seen:
        """What all further warnings of a line of the code have together."""
        return self._seen.setdefault(key[:_SHARED], _Seen(now))

    def _forget(self, now: float) -> None:
        """Forget warnings that did not repeat; others too where there is no room."""
        oldest = now - self._period
        full = len(self._seen) >= self._places
        before, self._seen = self._seen, {}
        ended = []
        for key, seen in before.items():
            if seen.since > oldest or (seen.suppressed and len(key) == _SHARED):
                self._seen[key] = seen
            elif seen.suppressed:
                ended.append((key, seen))
        for key, seen in ended:
            if full:
                shared = self._shared(key, now)
                shared.suppressed += seen.suppressed
                shared.last = seen.last
            else:
                self._seen[key] = seen
        self._forgot, self._room = now, max(_FEW, 2 * len(self._seen))


class _Seen:
    """How often a warning was shown and suppressed since a time."""

    __slots__ = ("last", "shown", "since", "suppressed")

    def __init__(self, since: float) -> None:
        self.since = since
        self.shown = 0
        self.suppressed = 0
        self.last: logging.LogRecord | None = None


def log_in_worker() -> None:
    """Log as JSON lines on standard error if the environment asks for it.

    For Python workers of Spark, whose log is not configured otherwise. A process that
    has handlers already is left unchanged.
    """
    root = logging.getLogger()
    if os.environ.get(LOG_FORMAT) != "json" or root.handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    handler.addFilter(RateLimit())
    root.addHandler(handler)
    logging.captureWarnings(capture=True)
