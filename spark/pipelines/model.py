"""Data model of pipelines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfactory.spark.pipelines.options import Refresh, Trigger
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
class Lookup:
    """A table that steps read beside streams: reference data."""

    id: str
    stream: StreamDefinition | None
    """The stream whose latest row of each key is the table; None for a format."""
    key: tuple[str, ...]
    """Columns of the key, of a stream."""
    format: str
    """Name of Spark's connector, without a stream."""
    path: str | None
    """As the connector reads it; None for connectors without paths, as JDBC."""
    schema: str | None
    """Its columns, as DDL; None: those that the connector finds."""
    options: Mapping[str, str]
    """Options of the connector's reader, with references to secrets."""
    refresh: Refresh
    origin: str


@dataclass(frozen=True, slots=True)
class Distinct:
    """Columns whose values are not repeated in the rows of a step."""

    by: tuple[str, ...]
    within: bool
    """Whether Spark forgets values once the watermark has passed them by its delay."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """A condition that the rows of a step are expected to fulfil."""

    name: str
    on: str
    """Id of the step."""
    condition: str
    """As SQL; a row for which it is null does not fulfil it."""
    on_failure: str
    """``warn``, ``drop``, ``dead-letter`` or ``fail``."""
    origin: str

    @property
    def fulfilled(self) -> str:
        """The condition as SQL that is never null."""
        # On separate lines: a comment at its end would hide the bracket.
        return f"coalesce((\n{self.condition}\n), false)"


@dataclass(frozen=True, slots=True)
class Step:
    """One query, and the id by which later steps refer to it."""

    id: str
    sql: str
    """A query; empty for a function."""
    watermark: Watermark | None
    origin: str
    distinct: Distinct | None = None
    expectations: tuple[Expectation, ...] = ()
    """Those that are counted in its rows."""
    of: str | None = None
    """The step of the file that it is a part of, for messages."""
    python: str | None = None
    """``module:function``, in place of SQL."""
    inputs: tuple[str, ...] = ()
    """Ids whose rows the function takes."""

    @property
    def shown(self) -> str:
        """Its id in messages."""
        return self.of or self.id


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
    lookups: tuple[Lookup, ...] = ()
    engine: str = "spark"
    """``spark`` or ``datafusion``."""

    @property
    def targets(self) -> tuple[Sink | Table, ...]:
        """All sinks of rows: streams and tables."""
        return (*self.sinks, *self.tables)

    @property
    def all_sinks(self) -> tuple[Sink, ...]:
        """All streams that are written, including that of dead letters."""
        return self.sinks + (() if self.dead_letters is None else (self.dead_letters,))

    def shown(self, name: str) -> str:
        """An id in messages: a part of a step has the id of the step."""
        return next((one.shown for one in self.steps if one.id == name), name)


@dataclass(frozen=True, slots=True)
class Draft:
    """A parsed file, possibly incomplete, with its problems."""

    name: str
    origin: str
    entries: tuple[Entry, ...]
    """Its sources."""
    lookups: tuple[Lookup, ...]
    steps: tuple[Step, ...]
    targets: tuple[Sink | Table, ...]
    """All sinks of rows."""
    streams: tuple[StreamDefinition, ...]
    """All named streams, without duplicates."""
    hook: Hook | None
    pipeline: Pipeline | None
    """None if there are problems."""
    problems: tuple[Problem, ...]
    places: Mapping[str, str] = field(default_factory=dict)
    """Where keys of the pipeline, and its tables, stand; keys in lower case."""
    engine: str = "spark"
    """``spark`` or ``datafusion``."""
