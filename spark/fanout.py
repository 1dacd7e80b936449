"""Writes the rows of one epoch to several sinks, each of them exactly once.

Used by pipelines with several sinks, and by `streamfactory.spark.fan_out` for functions
of `foreachBatch`.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyspark import InheritableThread

from streamfactory.spark.arrangement import Arrangement
from streamfactory.spark.catalogues import Home
from streamfactory.spark.failures import describe_failure
from streamfactory.spark.saving import save_epoch
from streamfactory.spi import ConfigError, MisuseError, PermanentError, Problem
from streamfactory.wiring.config.loading import find_definition, load
from streamfactory.wiring.core.guard import log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from streamfactory.spark import Branch
    from streamfactory.wiring.config.definition import StreamDefinition

    _Sink = tuple[StreamDefinition, Callable[[DataFrame], DataFrame] | None]

FORMAT: Final = "streamfactory"
QUERY_PROPERTY: Final = "sql.streaming.queryId"
"""Spark's local property with the id of the streaming query of a thread."""


class FanOutFailed(PermanentError):
    """An epoch could not be written to some of its sinks; the others have it."""

    code = "fan_out_failed"


@dataclass(frozen=True, slots=True)
class SinkWrite:
    """The rows of one epoch for one sink."""

    arranged: Arrangement
    rows: DataFrame
    replaces: bool = False
    """Whether the rows replace all earlier ones."""
    saves: bool = False
    """Whether Spark's Parquet writer writes them, if the sink takes its files."""

    def run(self, query: str, epoch: int) -> None:
        """Write the rows, unless the sink has the epoch already.

        Args:
            query: First part of the writer id; the name of the sink is the second.
            epoch: Number of the batch.
        """
        arranged = replace(self.arranged, streaming=True)
        options = {"writer.id": f"{query}/{arranged.sink}", "epoch": str(epoch)}
        properties = arranged.definition.properties
        if any(prop.key.lower() == "writer.id" for prop in properties):
            del options["writer.id"]  # the sink has an explicit one
        if self.saves and self._save(arranged, options):
            return
        writer = self.rows.write.format(FORMAT)
        writer = writer.options(**arranged.to_options(**options))
        writer.mode("overwrite" if self.replaces else "append").save()

    def _save(self, arranged: Arrangement, options: Mapping[str, str]) -> bool:
        """Save the rows; False if that is not possible, and nothing was written."""
        config = load(arranged.definition, "spark", options=options, quiet=True).config
        why = save_epoch(
            self.rows, config, replaces=self.replaces, ledger=arranged.ledger
        )
        if why is not None:
            what = "sink %r: epoch %s is written by format(%r): %s"
            log.warning(what, arranged.sink, options["epoch"], FORMAT, why)
        return why is None


@contextmanager
def evaluated_once(frame: DataFrame, *, sinks: int) -> Iterator[DataFrame]:
    """Cache a frame for several sinks, so that its rows are computed once.

    It is computed before the first sink reads it: sinks that start at the same time on
    different executors would each compute it. A frame that is cached already stays so.
    """
    if sinks < 2 or frame.is_cached:
        yield frame
        return
    frame.persist()
    try:
        frame.count()
        yield frame
    finally:
        frame.unpersist()


def write_all(
    session: SparkSession, writes: Mapping[str, Callable[[], None]]
) -> dict[str, Exception]:
    """Write to all sinks at the same time; returns the failures by sink.

    Each sink is tried, whatever happens to the others. Returns when the last one ends.
    """
    failures: dict[str, Exception] = {}

    def attempt(name: str) -> None:
        try:
            _activate(session)
            writes[name]()
        except Exception as error:  # noqa: BLE001 - the caller decides
            failures[name] = error

    # The threads inherit Spark's local properties: stopping the query cancels their
    # jobs, and they share the scheduler pool of the query.
    threads = [
        InheritableThread(attempt, session=session, args=(name,))
        for name in list(writes)[1:]
    ]
    for thread in threads:
        thread.start()
    for name in list(writes)[:1]:
        attempt(name)
    for thread in threads:
        thread.join()
    return {name: failures[name] for name in writes if name in failures}


def _activate(session: SparkSession) -> None:
    """Make a session the active one of this thread.

    Spark looks a data source up in the active session, which in a new thread is not
    that of the query (seen with 4.3.0: DATA_SOURCE_NOT_FOUND).
    """
    java: Any = session
    jvm = java._jvm.org.apache.spark.sql.classic.SparkSession
    jvm.setActiveSession(java._jsparkSession)


def describe_failures(failures: Mapping[str, Exception]) -> str:
    """Why an epoch was not written to some sinks."""
    if len(failures) == 1:
        return describe_failure(*failures.values())
    found = (f"{name!r}: {describe_failure(one)}" for name, one in failures.items())
    return f"{len(failures)} sinks failed: {'; '.join(found)}"


def fan_out_frame(
    frame: DataFrame,
    epoch: int,
    streams: Sequence[str | Mapping[str, str] | Branch],
    query: str | None,
) -> None:
    """Implementation of `streamfactory.spark.fan_out`."""
    session = frame.sparkSession
    sinks = _sinks(streams, Home.of(session))
    writer = _query_of(session) if query is None else query
    if not writer:
        msg = "fan_out needs an id for its writers that survives restarts"
        remedy = "call it in foreachBatch, or set query to a name of its own"
        raise MisuseError(msg, remedy=remedy)
    with evaluated_once(frame, sinks=len(sinks)):
        failures = write_all(
            session,
            {
                name: partial(_write_branch, frame, sink, name, writer, epoch)
                for name, sink in sinks.items()
            },
        )
    if failures:
        written = [repr(name) for name in sinks if name not in failures]
        msg = f"epoch {epoch} of {writer!r}: {describe_failures(failures)}"
        msg += f"; written to {', '.join(written)}" if written else "; none has it"
        remedy = "start the query again: sinks that have the epoch take no second copy"
        raise FanOutFailed(msg, remedy=remedy) from next(iter(failures.values()))


def _write_branch(
    frame: DataFrame, sink: _Sink, name: str, query: str, epoch: int
) -> None:
    definition, select = sink
    rows = frame if select is None else select(frame)
    SinkWrite(Arrangement(definition, sink=name), rows).run(query, epoch)


def _query_of(session: SparkSession) -> str | None:
    found: str | None = session.sparkContext.getLocalProperty(QUERY_PROPERTY)
    return found


def _sinks(
    streams: Iterable[str | Mapping[str, str] | Branch], home: Home
) -> dict[str, _Sink]:
    """The sinks by name; refuses all invalid ones at once."""
    from streamfactory.spark import Branch

    catalogue = home.catalogue()
    problems: list[Problem] = []
    found: list[tuple[str, _Sink]] = []
    for index, one in enumerate(streams):
        branch = one if isinstance(one, Branch) else Branch(one)
        try:
            definition = find_definition(branch.stream, catalogue)
            definition = definition.in_folder(home.folder)
            configured = load(definition, "spark")
        except ConfigError as error:
            where = f"streams[{index}]"
            problems += error.problems or [
                Problem(where, error.what, suggestion=error.remedy)
            ]
            continue
        name = branch.name or definition.name or configured.config.topic
        found.append((name, (definition, branch.select)))
    names = Counter(name for name, _ in found)
    for name, count in names.items():
        if count > 1:
            hint = "set Branch.name: it is part of the writer id"
            what = f"{count} sinks are named {name!r}"
            problems.append(Problem("streams", what, suggestion=hint))
    if not found and not problems:
        problems.append(Problem("streams", "is empty"))
    if problems:
        msg = f"fan_out: {len(problems)} problem{'s' * (len(problems) > 1)}"
        raise ConfigError(msg, problems=problems)
    return dict(found)
