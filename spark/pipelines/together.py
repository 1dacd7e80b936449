"""Runs pipelines from files: the implementation of ``streamfactory run``."""

from __future__ import annotations

import tempfile
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

from streamfactory.spark.checkpoints import Place
from streamfactory.spark.checkpoints.holding import hold
from streamfactory.spark.pipelines.checking import check_draft
from streamfactory.spark.pipelines.deadletters import inflow_of
from streamfactory.spark.pipelines.lookups import schema_of
from streamfactory.spark.pipelines.options import SPARK
from streamfactory.spark.pipelines.overriding import Overrides, PipelineFiles, noting
from streamfactory.spark.pipelines.preparing import (
    build,
    check_sql,
    open_checkpoint,
)
from streamfactory.spark.pipelines.previewing import preview
from streamfactory.spark.pipelines.problems import errors, refuse
from streamfactory.spark.pipelines.running import run_prepared
from streamfactory.spi import ConfigError, Problem
from streamfactory.wiring.core.guard import log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from streamfactory.spark.pipelines.deadletters import Inflow
    from streamfactory.spark.pipelines.model import Draft
    from streamfactory.spark.pipelines.outcomes import Batch, Outcome
    from streamfactory.spark.pipelines.preparing import Built, Prepared
    from streamfactory.spark.pipelines.sampling import Sample
    from streamfactory.spark.pipelines.sql import Analysis


@final
class Pipelines:
    """Pipelines read from files, to be run together.

    Args:
        paths: Of their files.
        overrides: Of all of them.
        texts: In place of what is in a file, by its path.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        overrides: Overrides | None = None,
        texts: Mapping[Path, str] | None = None,
    ) -> None:
        self._overrides = overrides or Overrides()
        self._files = PipelineFiles.read(paths, self._overrides, texts)
        self._problems = self._files.problems
        self.drafts = self._files.drafts

    @property
    def settings(self) -> dict[str, str]:
        """Settings for a Spark session that is started for the pipelines."""
        found = dict(self._overrides.settings)
        for draft in self.drafts:
            if draft.pipeline is not None:
                found |= draft.pipeline.spark
        return found

    def refuse(self) -> None:
        """Raise if the files have errors.

        Raises:
            ConfigError: config; with all errors that can be found without Spark.
        """
        self._files.refuse()

    def check(self, spark: SparkSession) -> None:
        """Raise if the files, or their SQL, have errors. Changes nothing.

        Raises:
            ConfigError: config; with all errors that Spark finds without a query.
            TransientError: transient; a stream could not be reached.
        """
        problems = list(self._problems)
        for draft in self.drafts:
            problems += _Begun(draft, Path()).analyse(spark)
        refuse(problems, self._origin)

    def refuse_others(self) -> None:
        """Raise if a pipeline has another engine: Spark's checkpoint is not its own.

        Raises:
            ConfigError: config.
        """
        for draft in self.drafts:
            if draft.engine != SPARK:
                msg = f"the pipeline {draft.name!r} has engine = {draft.engine!r}, and "
                msg += "Spark would run it"
                remedy = "use `streamfactory run`, alone or with others of its engine"
                raise ConfigError(msg, remedy=remedy)

    def run(
        self,
        spark: SparkSession,
        stop: threading.Event | None = None,
        on_batch: Callable[[Batch], None] | None = None,
    ) -> list[Outcome]:
        """Run the pipelines concurrently until each has ended.

        Args:
            spark: A session. The pipelines run in copies of it, with its settings,
                functions and views.
            stop: Once set, all finish their current batch and end.
            on_batch: Called with each committed batch, in the calling thread.

        Raises:
            ConfigError: config; with all problems of all pipelines. None was started.
            TransientError: transient; a stream could not be reached.
        """
        self.refuse_others()
        with self.prepared(spark) as prepared:
            return run_prepared(
                prepared, stop or threading.Event(), on_batch or (lambda _: None)
            )

    def preview(self, spark: SparkSession, rows: int) -> list[Sample]:
        """The first rows of the sources, and what each step makes of them.

        Nothing is written, and no position is saved. Of one pipeline.

        Args:
            spark: A session; it is not changed.
            rows: Most rows of each source and step.

        Raises:
            ConfigError: config; with all problems of the pipeline.
            StreamError: Errors of a stream, or of a lookup.
        """
        _refuse_connect(spark)
        [draft] = self.drafts
        one = _Begun(draft, Path())
        refuse([*self._problems, *one.analyse(spark)], self._origin)
        assert draft.pipeline is not None
        assert one.analysis is not None
        return preview(spark, draft.pipeline, one.analysis, rows)

    @contextmanager
    def prepared(self, spark: SparkSession) -> Iterator[list[Prepared]]:
        """Validate the pipelines and build their queries."""
        _refuse_connect(spark)
        over = self._overrides
        with tempfile.TemporaryDirectory(prefix="streamfactory-") as folder:
            begun = [
                _Begun(draft, Path(folder, str(number)))
                for number, draft in enumerate(self.drafts)
            ]
            problems = [*self._problems]
            for one in begun:
                problems += one.analyse(spark)
            refuse(problems, self._origin)
            with ExitStack() as held:
                for one in begun:
                    held.callback(one.close)
                    problems += one.build(spark)
                refuse(problems, self._origin)
                # Nothing is saved before this point.
                for one in begun:
                    problems += one.hold(held)
                refuse(problems, self._origin)
                for one in begun:
                    problems += one.open(over.reset, over.ignore)
                refuse(problems, self._origin)
                yield [one.prepared for one in begun if one.prepared is not None]

    @property
    def _origin(self) -> str:
        return self._files.origin


def _refuse_connect(spark: SparkSession) -> None:
    """Refuse Spark Connect: drain files and checkpoints are accessed by the driver."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        msg = (
            "pipelines do not support Spark Connect, which gives no access to the "
            "driver"
        )
        remedy = "run them where the driver is: streamfactory run --master ..."
        raise ConfigError(msg, remedy=remedy)


@dataclass(slots=True)
class _Begun:
    """A pipeline while it is prepared. Each method returns the problems found."""

    draft: Draft
    drain: Path
    analysis: Analysis | None = None
    inflows: dict[str, Inflow] | None = None
    built: Built | None = None
    prepared: Prepared | None = None

    def analyse(self, spark: SparkSession) -> list[Problem]:
        pipeline, found = self.draft.pipeline, list[Problem]()
        if pipeline is not None and not errors(check_draft(self.draft)):
            with noting(self.draft, found):
                self.inflows = {
                    one.id: inflow_of(pipeline, one) for one in pipeline.sources
                }
        schemas = None
        if pipeline is not None and self.inflows is not None:
            schemas = {name: one.schema for name, one in self.inflows.items()}
            for lookup in pipeline.lookups:
                with noting(self.draft, found):
                    schemas[lookup.id] = schema_of(spark, lookup)
        self.analysis, problems = check_sql(spark, self.draft, schemas)
        for problem in problems:
            if problem.level != "error":
                log.warning("pipeline %r: %s", self.draft.name, problem)
        return found + problems

    def build(self, spark: SparkSession) -> list[Problem]:
        found: list[Problem] = []
        assert self.analysis is not None
        assert self.inflows is not None
        with noting(self.draft, found):
            self.built = build(
                spark, self.draft, self.analysis, self.inflows, self.drain
            )
        return found

    def close(self) -> None:
        """Free what the query has cached."""
        if self.built is not None:
            self.built.building.lookups.close()

    def hold(self, held: ExitStack) -> list[Problem]:
        """Hold the checkpoint until the stack is closed."""
        found: list[Problem] = []
        assert self.built is not None
        with noting(self.draft, found):
            held.enter_context(hold(Place.of(self.built.pipeline.checkpoint)))
        return found

    def open(self, reset: str | None, ignore: str | None) -> list[Problem]:
        found: list[Problem] = []
        assert self.built is not None
        with noting(self.draft, found):
            self.prepared = open_checkpoint(
                self.built, self.drain, reset=reset, ignore=ignore
            )
        return found
