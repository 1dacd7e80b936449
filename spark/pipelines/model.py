"""A pipeline: a source, steps of SQL, sinks, and how to run."""

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
    """How late rows may come, by their event time, before Spark drops them."""

    column: str
    delay: str
    """An interval as Spark reads it: ``10 minutes``."""


@dataclass(frozen=True, slots=True)
class Step:
    """One query, and the name that it has in later ones."""

    id: str
    sql: str
    watermark: Watermark | None
    origin: str


@dataclass(frozen=True, slots=True)
class Outlet:
    """A sink: where the rows of one id go."""

    name: str
    """Unlike all others of the pipeline: who writes is known by it."""
    rows: str
    """The id whose rows it takes."""
    stream: StreamDefinition
    origin: str


@dataclass(frozen=True, slots=True)
class Hook:
    """What is called after each committed batch."""

    command: str | None
    entry_point: str | None
    on_failure: str
    timeout: float
    """Seconds."""
    origin: str


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One pipeline. Every part of it is there; nothing was asked of any stream."""

    name: str
    description: str
    origin: str
    """The file."""
    source: StreamDefinition
    source_id: str
    watermark: Watermark | None
    steps: tuple[Step, ...]
    sinks: tuple[Outlet, ...]
    dead_letters: Outlet | None
    trigger: Trigger
    mode: str
    """``append``, ``update`` or ``complete``."""
    checkpoint: str
    """A folder, or its URL."""
    idle_rounds: int | None
    hook: Hook
    spark: Mapping[str, str] = field(default_factory=dict)
    """Settings of the session."""

    @property
    def outlets(self) -> tuple[Outlet, ...]:
        """All sinks, that of dead letters among them."""
        return self.sinks + (() if self.dead_letters is None else (self.dead_letters,))


@dataclass(frozen=True, slots=True)
class Draft:
    """What a file says, as far as it can be read, and what is wrong with it."""

    name: str
    origin: str
    source_id: str
    watermark: Watermark | None
    """Of the source."""
    steps: tuple[Step, ...]
    sinks: tuple[Outlet, ...]
    streams: tuple[StreamDefinition, ...]
    """All that are named, each once."""
    hook: Hook | None
    pipeline: Pipeline | None
    """None where there are problems."""
    problems: tuple[Problem, ...]
