"""The record of who changed what: rows of a stream, written before the answer.

Pages and commands write it. A change has a row when it begins, and one with its
outcome; a refused one has a single row.
"""

from __future__ import annotations

import threading
import uuid
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
import pyarrow as pa

from streamfactory.engines.search.browsing import Browser, Limits
from streamfactory.engines.search.columns import octets_text
from streamfactory.spi import (
    ClosedError,
    ConfigError,
    ConnectionFailed,
    Position,
    StreamError,
    TopicNotFound,
)
from streamfactory.spi.files import read_file
from streamfactory.wiring.config.documents import MAX_BYTES
from streamfactory.wiring.config.loading import load
from streamfactory.wiring.core.closing import Closing
from streamfactory.wiring.core.guard import masked_errors
from streamfactory.wiring.core.shown import masked, printable
from streamfactory.wiring.core.values import plain_values
from streamfactory.wiring.options.vocabulary import AUDIT
from streamfactory.wiring.reading.position_arguments import offsets_of
from streamfactory.wiring.reading.source import Source
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from streamfactory.spi import Partition
    from streamfactory.wiring.config.catalogue import Catalogue
    from streamfactory.wiring.config.definition import StreamDefinition
    from streamfactory.wiring.writing.sink import Sink

_TEXTS: Final = (
    "change",
    "user",
    "client",
    "right",
    "kind",
    "name",
    "outcome",
    "what",
    "before",
    "after",
    "reason",
)
SCHEMA: Final = pa.schema(
    [
        pa.field("time", pa.timestamp("us", "UTC"), nullable=False),
        *(pa.field(name, pa.string(), nullable=False) for name in _TEXTS),
    ]
)
"""The columns of the stream."""
BEGUN, MADE, FAILED, REFUSED = "begun", "made", "failed", "refused"
OUTCOMES: Final = (BEGUN, MADE, FAILED, REFUSED)
_MOST: Final = 64 * 1024
"""Characters of one value: a definition has fewer."""
_LIMITS: Final = Limits(rows=1_000_000, size=64 << 20, seconds=10.0)


@final
@dataclass(frozen=True, slots=True)
class Change:
    """A change, or what would have been one."""

    user: str
    client: str
    """Address or machine of the user."""
    right: str
    """That it needs."""
    kind: str
    """Of what is changed: ``stream``, ``pipeline``, ``group`` and so on."""
    name: str
    before: str = ""
    after: str = ""
    key: str = field(default_factory=lambda: uuid.uuid4().hex)
    """The same in all rows of one change."""


@final
class AuditTrail(Closing):
    """Writes the record. Thread-safe; connects on first use.

    Args:
        find: Finds the definition of the stream.

    Raises:
        ConfigError: config; the stream cannot be found.
        StreamError: As `open_sink`.
    """

    def __init__(self, find: Callable[[], StreamDefinition]) -> None:
        self._find = find
        self.name = find().name
        self._lock = threading.Lock()
        self._closed = False
        self._sink: Sink | None = open_sink(find())

    def write(
        self, change: Change, outcome: str, what: str = "", reason: str = ""
    ) -> None:
        """Write one row; it is committed when this returns.

        What fails with a sink that was open before is tried once more with a new one:
        after an error whose outcome is unknown, the row may be there twice.

        Args:
            change: The change.
            outcome: One of `OUTCOMES`.
            what: What is done, without secrets.
            reason: Why it was refused, or failed.

        Raises:
            ConnectionFailed: transient; the row is not written, or not known to be.
        """
        texts = {
            "change": change.key,
            "user": change.user,
            "client": change.client,
            "right": change.right,
            "kind": change.kind,
            "name": change.name,
            "outcome": outcome,
            "what": what,
            "before": change.before,
            "after": change.after,
            "reason": reason,
        }
        safe = {
            key: [_escaped(text, lines=key in ("before", "after"))]
            for key, text in texts.items()
        }
        row = pa.table({"time": [datetime.now(UTC)], **safe}, schema=SCHEMA)
        # In one partition rows keep their order, also where messages have no times.
        row = row.append_column("_partition", pa.array([0], pa.int32()))
        try:
            with self._lock:
                if self._closed:
                    msg = "the record is closed"
                    raise ClosedError(msg)
                was_open = self._sink is not None
                try:
                    self._put(row)
                except StreamError:
                    # Its connection may be dead, or the topic created again.
                    if not was_open:
                        raise
                    self._put(row)
        except StreamError as error:
            msg = f"changes cannot be recorded in {self.name!r}: {error.what}"
            remedy = "have that stream written to first: no change is made without"
            raise ConnectionFailed(msg, remedy=remedy) from error

    def _put(self, row: pa.Table) -> None:
        if self._sink is None:
            self._sink = open_sink(self._find())
        try:
            self._sink.put(row)
        except StreamError:
            self._sink.close()
            self._sink = None
            raise

    @contextmanager
    def recorded(self, change: Change, what: str) -> Iterator[None]:
        """Record that a change begins, which the block makes, and its outcome.

        Raises:
            ConnectionFailed: transient; nothing was changed, because it could not be
                recorded; or the outcome could not, which the message says.
        """
        self.write(change, BEGUN, what)
        outcome, reason = FAILED, ""
        try:
            yield
            outcome = MADE
        except BaseException as error:
            reason = str(error) or type(error).__name__
            raise
        finally:
            try:
                self.write(change, outcome, what, reason)
            except ConnectionFailed as error:
                error.what = f"the change has ended ({outcome}), but {error.what}"
                error.remedy = "look at what was changed, and mend that stream"
                raise

    def close(self) -> None:
        """Close the stream; twice is allowed."""
        with self._lock:
            self._closed = True
            if self._sink is not None:
                self._sink.close()


def audit_stream(catalogue: Catalogue) -> StreamDefinition | None:
    """The stream of a catalogue that records changes by commands; None without one.

    Raises:
        ConfigError: config; there are two, or the catalogue cannot be read, or a file
            of it that may define the record.
    """
    for path, error in catalogue.broken().items():
        if path.parent == catalogue.folder and _may_define(path):
            msg = f"{path} may define the record of changes, and cannot be read"
            remedy = f"to see why: streamfactory validate {path}"
            raise ConfigError(msg, remedy=remedy) from error
    found = [
        one
        for name in catalogue.names()
        for one in catalogue.definitions(name)
        if any(
            prop.key.lower() == AUDIT.key and prop.text.strip().lower() == "true"
            for prop in one.properties
        )
    ]
    if len(found) > 1:
        names = " and ".join(repr(one.name) for one in found)
        msg = f"the streams {names} have {AUDIT.key}=true"
        raise ConfigError(msg, remedy="leave it to one of them")
    return found[0] if found else None


def _may_define(path: Path) -> bool:
    """Whether a file that cannot be read has the word of the option."""
    word = AUDIT.key.partition(".")[0].encode()
    try:
        return word in read_file(path, MAX_BYTES).lower()
    except PermissionError:
        return True
    except OSError:
        return False  # a folder, for instance


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which rows are wanted; empty texts: all of them."""

    user: str = ""
    name: str = ""
    outcome: str = ""
    since: datetime | None = None

    def matches(self, rows: pa.RecordBatch) -> np.ndarray:
        """Whether each row is wanted."""
        found = np.ones(rows.num_rows, bool)
        for key in ("user", "name", "outcome"):
            if text := getattr(self, key):
                values = rows.column(key).to_pylist()
                found &= np.array([one == text for one in values], bool)
        if self.since is not None:
            times = rows.column("time").to_pylist()
            found &= np.array([one >= self.since for one in times], bool)
        return found


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Rows of the record, in their order."""

    rows: list[dict[str, Any]]
    before: Position
    """Where the page begins."""
    more: bool
    """Whether there are rows before it."""


def read_audit(
    definition: StreamDefinition,
    wanted: Wanted,
    *,
    most: int,
    marks: Any = None,
    limits: Limits = _LIMITS,
) -> AuditPage:
    """The newest rows of the record, or those before a place, oldest first.

    Args:
        definition: The stream.
        wanted: Which rows.
        most: Rows.
        marks: The place, of `parse_marks`; None for the latest.
        limits: What the search may cost.

    Raises:
        StreamError: The stream cannot be read, or has other columns.
    """
    overrides = {"metadata.columns": "true"}
    configured = load(definition.with_overrides(overrides), "read", quiet=True)
    mask = configured.config.mask
    with masked_errors([mask]), closing(Source(configured)) as source:
        try:
            return _page(source, wanted, marks, replace(limits, messages=most))
        except TopicNotFound:  # nothing was recorded yet
            return AuditPage([], Position({}), more=False)


def _page(source: Source, wanted: Wanted, marks: Any, limits: Limits) -> AuditPage:
    if lacking := set(SCHEMA.names) - set(source.schema.names):
        msg = f"the stream is no record of changes: it lacks {min(lacking)!r}"
        raise ConfigError(msg, stream=source.config.name)
    infos = source.metadata.partitions()
    position: Mapping[Partition, int] = {}
    if marks is not None:
        position = offsets_of(source.config, source.metadata, infos, marks)
    page = Browser(source, limits, wanted.matches).page(infos, position, back=True)
    rows = [
        row
        for one in page.messages
        for row in plain_rows(one.rows.select(SCHEMA.names))
    ]
    safe: list[dict[str, Any]] = masked(rows, source.config.mask)
    return AuditPage(safe, page.before, page.has_previous)


def plain_rows(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows as plain values, by column."""
    columns = {
        name: plain_values(rows.column(name), octets_text) for name in rows.schema.names
    }
    return [
        dict(zip(columns, values, strict=True))
        for values in zip(*columns.values(), strict=True)
    ]


def _escaped(text: str, *, lines: bool) -> str:
    """A text without control characters; a definition keeps its lines."""
    cut = text if len(text) <= _MOST else f"{text[:_MOST]} ... ({len(text)} characters)"
    return "\n".join(map(printable, cut.split("\n"))) if lines else printable(cut)
