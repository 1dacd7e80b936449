"""What children do: they write and read a stream through the framework."""

from __future__ import annotations

import logging
import pickle
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from streamfactory.conformance.children import die
from streamfactory.conformance.harness import WritesRows
from streamfactory.conformance.moments import Moments
from streamfactory.spi import WriterFenced
from streamfactory.wiring.config.settled import Configured
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.writing.sink import Sink

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import pyarrow as pa

    from streamfactory.conformance.bench import Bench
    from streamfactory.conformance.moments import Moment
    from streamfactory.spi import Backend, CommitMessage, StreamConfig


@dataclass(frozen=True, slots=True)
class Place:
    """A stream as it crosses into a child: a plug-in is named by its classes."""

    config: StreamConfig
    backend: Backend | None
    """None where the child finds it by the name of its type."""
    decoder: str | None

    @classmethod
    def of(cls, configured: Configured) -> Place:
        """Of a configuration.

        The descriptor's options and rules stay here: they were applied already.
        """
        bare = replace(
            configured.backend,
            options=(),
            check_options=None,
            topic_admin=None,
            server=None,
        )
        decoder = configured.decoder
        place = cls(configured.config, bare, None if decoder is None else decoder.name)
        try:
            pickle.dumps(place)  # what does not pickle fails here, and not in the child
        except (pickle.PicklingError, TypeError, AttributeError):
            # Exceptions of a compiled client, in `translate`, have no module.
            known = default_manager().backend(configured.config.type)
            if known.producer_factory is not configured.backend.producer_factory:
                raise
            place = replace(place, backend=None)
        return place

    def configured(self) -> Configured:
        """The configuration again."""
        logging.getLogger("streamfactory").setLevel(logging.CRITICAL)
        name = self.decoder
        decoder = None if name is None else default_manager().decoder(name)
        backend = self.backend or default_manager().backend(self.config.type)
        return Configured(self.config, backend, decoder)


@dataclass(frozen=True, slots=True)
class Epoch:
    """An epoch to be written."""

    number: int
    tasks: tuple[pa.RecordBatch, ...]

    @classmethod
    def of(cls, bench: Bench, number: int, *tasks: Sequence[int]) -> Epoch:
        """Of numbers, by task."""
        return cls(
            number, tuple(bench.use(WritesRows).rows(numbers) for numbers in tasks)
        )


@dataclass(frozen=True, slots=True)
class Course:
    """What happens to a child inside commit."""

    moment: Moment | None = None
    """When it is struck; None for never."""
    strike: Callable[[], None] = die
    """What happens then."""


@dataclass(frozen=True, slots=True)
class Race:
    """Two children, of which one commits while the other is held inside commit.

    They signal each other by files: no busy machine makes one of them too late.
    """

    folder: Path
    """Empty, and of this race alone."""
    longest: float
    """Seconds that the first child is held after the second one has begun: the second
    may be waiting for a lock of the first."""

    def hold(self) -> None:
        """Hold the first child."""
        self.signal(_HELD)
        if self.wait(_BEGUN, _PATIENCE):
            self.wait(_ENDED, self.longest)

    def signal(self, name: str) -> None:
        """Report a step to the other child."""
        (self.folder / name).touch()

    def wait(self, name: str, seconds: float) -> bool:
        """Wait for a step of the other child; whether it was reported in time."""
        until = time.monotonic() + seconds
        while not (reported := (self.folder / name).exists()):
            if time.monotonic() > until:
                break
            time.sleep(_LOOK)
        return reported


_HELD, _BEGUN, _ENDED = "held", "begun", "ended"
_PATIENCE: Final = 20.0
_LOOK: Final = 0.005


def write_epoch(
    place: Place, writer: str, epoch: Epoch, course: Course
) -> tuple[str, int, int]:
    """Write an epoch that is not there yet, as a restarted writer does.

    Returns:
        What became of it, the number of calls inside commit, and of those of them that
        reach the medium.
    """
    with Moments() as moments, Sink(place.configured(), crashes=True) as sink:
        committer = sink.committer(writer_id=writer)
        last = committer.last()
        if last is not None and last.epoch >= epoch.number:
            return "was there", 0, 0
        messages = _staged(sink, writer, epoch)
        commit = partial(committer.commit, epoch.number, messages)
        try:
            made = moments.run(commit, course.moment, course.strike)
        except WriterFenced:
            return "fenced", moments.calls, moments.outside
        return "committed" if made else "was there", moments.calls, moments.outside


def write_first(
    place: Place, writer: str, epoch: Epoch, moment: Moment | None, race: Race
) -> tuple[str, int, int]:
    """Write an epoch; inside commit, let the second child of a race write."""
    try:
        return write_epoch(place, writer, epoch, Course(moment, race.hold))
    finally:
        race.signal(_HELD)  # the moment may never have come


def write_second(
    place: Place, writer: str, epoch: Epoch, race: Race
) -> tuple[str, float]:
    """Write an epoch once the first child of a race is held, or has ended.

    Returns:
        What became of it, and the seconds that it took.
    """
    race.wait(_HELD, _PATIENCE)
    race.signal(_BEGUN)
    begun = time.monotonic()
    try:
        outcome, *_ = write_epoch(place, writer, epoch, Course())
    finally:
        race.signal(_ENDED)
    return outcome, time.monotonic() - begun


def _staged(sink: Sink, writer: str, epoch: Epoch) -> list[CommitMessage]:
    messages: list[Any] = []
    for task, rows in enumerate(epoch.tasks):
        with sink.writer(
            rows.schema, writer_id=writer, epoch=epoch.number, task=task
        ) as attempt:
            attempt.write(rows)
            messages.append(attempt.commit())
    return messages
