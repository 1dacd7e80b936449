"""What children do: they write and read a stream through the framework."""

from __future__ import annotations

import logging
import pickle
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from streamfactory.conformance.children import die
from streamfactory.conformance.harness import WritesRows
from streamfactory.conformance.moments import Moments
from streamfactory.spi import WriterFenced
from streamfactory.wiring.config.settled import Configured
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.writing.sink import Sink

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    """When a child commits, and what happens to it."""

    moment: Moment | None = None
    """Inside commit, when the process dies, or is held; None for never."""
    hold: float | None = None
    """Seconds for which it is held; None: it dies."""
    begin: float = 0.0
    """Monotonic time before which nothing is done."""
    commit: float = 0.0
    """Monotonic time before which the epoch is staged and not committed."""

    def strike(self) -> None:
        """Die, or wait."""
        if self.hold is None:
            die()
        else:
            time.sleep(self.hold)


def write_epoch(
    place: Place, writer: str, epoch: Epoch, course: Course
) -> tuple[str, int, int]:
    """Write an epoch that is not there yet, as a restarted writer does.

    Returns:
        What became of it, the number of calls inside commit, and of those of them that
        reach the medium.
    """
    _wait(course.begin)
    with Moments() as moments, Sink(place.configured()) as sink:
        committer = sink.committer(writer_id=writer)
        last = committer.last()
        if last is not None and last.epoch >= epoch.number:
            return "was there", 0, 0
        messages = _staged(sink, writer, epoch)
        _wait(course.commit)
        commit = partial(committer.commit, epoch.number, messages)
        try:
            made = moments.run(commit, course.moment, course.strike)
        except WriterFenced:
            return "fenced", moments.calls, moments.outside
        return "committed" if made else "was there", moments.calls, moments.outside


def _wait(until: float) -> None:
    time.sleep(max(0.0, until - time.monotonic()))


def _staged(sink: Sink, writer: str, epoch: Epoch) -> list[CommitMessage]:
    messages: list[Any] = []
    for task, rows in enumerate(epoch.tasks):
        attempt = sink.writer(
            rows.schema, writer_id=writer, epoch=epoch.number, task=task
        )
        attempt.write(rows)
        messages.append(attempt.commit())
        attempt.close()
    return messages
