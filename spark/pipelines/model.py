"""Data model of pipelines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfactory.spark.pipelines.options import Trigger
    from streamfactory.spi import Problem
    from streamfactory.wiring.config.definition import StreamDefinition


@dataclass(frozen=True, slots=True)
class Watermark:
    """Event time column, and how late rows may arrive before Spark drops them."""

    column: str
    delay: str
    """An interval as Spark reads it: ``10 minutes``."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An id whose rows come from a stream, as far as the file could be parsed."""

    id: str
    watermark: Watermark | None
    origin: str


@dataclass(frozen=True, slots=True)
class Source(Entry):
    """A stream that is read."""

    stream: StreamDefinition


@dataclass(frozen=True, slots=True)
class Step:
    """One query, and the id by which later steps refer to it."""

    id: str
    sql: str
    watermark: Watermark | None
    origin: str


@dataclass(frozen=True, slots=True)
class Sink:
    """A sink for the rows of one id."""

    name: str
    """Unique within the pipeline: it is part of the writer id."""
    rows: str
    """The id whose rows are written."""
    stream: StreamDefinition
    origin: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table for the rows of one id, written by a connector of Spark."""

    name: str
    """Unique within the pipeline, among sinks too."""
    rows: str
    """The id whose rows are written."""
    format: str
    """Name of the connector: ``delta``."""
    path: str
    """As the connector reads it: a path, a URL, or a name."""
    options: Mapping[str, str]
    """Options of the connector's writer."""
    origin: str


@dataclass(frozen=True, slots=True)
class Hook:
    """The hook that is called after each committed batch."""

    command: str | None
    entry_point: str | None
    on_failure: str
    timeout: float
    """Seconds."""
    origin: str


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A complete pipeline. No stream was contacted."""

    name: str
    description: str
    origin: str
    """The file."""
    sources: tuple[Source, ...]
    """In the order of the file."""
    steps: tuple[Step, ...]
    sinks: tuple[Sink, ...]
    dead_letters: Sink | None
    trigger: Trigger
    mode: str
    """``append``, ``update`` or ``complete``."""
    checkpoint: str
    """A folder, or its URL."""
    idle_rounds: int | None
    hook: Hook
    spark: Mapping[str, str] = field(default_factory=dict)
    """Settings of the session."""
    tables: tuple[Table, ...] = ()

    @property
    def targets(self) -> tuple[Sink | Table, ...]:
        """All sinks of rows: streams and tables."""
        return (*self.sinks, *self.tables)

    @property
    def all_sinks(self) -> tuple[Sink, ...]:
        """All streams that are written, including that of dead letters."""
        return self.sinks + (() if self.dead_letters is None else (self.dead_letters,))


@dataclass(frozen=True, slots=True)
class Draft:
    """A parsed file, possibly incomplete, with its problems."""

    name: str
    origin: str
    entries: tuple[Entry, ...]
    """Its sources."""
    steps: tuple[Step, ...]
    targets: tuple[Sink | Table, ...]
    """All sinks of rows."""
    streams: tuple[StreamDefinition, ...]
    """All named streams, without duplicates."""
    hook: Hook | None
    pipeline: Pipeline | None
    """None if there are problems."""
    problems: tuple[Problem, ...]
