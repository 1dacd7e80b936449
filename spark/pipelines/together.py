"""Runs pipelines from files: the implementation of ``streamfactory run``."""

from __future__ import annotations

import tempfile
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from streamfactory.spark.checkpoints import Place
from streamfactory.spark.checkpoints.holding import hold
from streamfactory.spark.pipelines.checking import check_draft, errors, refuse
from streamfactory.spark.pipelines.deadletters import inflow_of
from streamfactory.spark.pipelines.definition import read_pipeline
from streamfactory.spark.pipelines.lookups import schema_of
from streamfactory.spark.pipelines.options import Trigger
from streamfactory.spark.pipelines.preparing import (
    build,
    check_sql,
    open_checkpoint,
)
from streamfactory.spark.pipelines.previewing import preview
from streamfactory.spark.pipelines.running import run_prepared
from streamfactory.spi import ConfigError, PositionRefused, Problem, StreamError
from streamfactory.wiring.config.catalogue import Catalogue
from streamfactory.wiring.core.guard import log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from streamfactory.spark.pipelines.deadletters import Inflow
    from streamfactory.spark.pipelines.model import Draft
    from streamfactory.spark.pipelines.preparing import Built, Prepared
    from streamfactory.spark.pipelines.previewing import Sample
    from streamfactory.spark.pipelines.progress import Batch
    from streamfactory.spark.pipelines.running import Outcome
    from streamfactory.spark.pipelines.sql import Analysis

ONCE: Final = "once"
CONTINUOUS: Final = "continuous"


@dataclass(frozen=True, slots=True)
class Overrides:
    """Command-line overrides for all pipelines."""

    pace: str | None = None
    """``once``: all available rows; ``continuous``: until stopped; or as configured."""
    reset: str | None = None
    ignore: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    """Spark settings, which take precedence over those of files."""
    allow_class_paths: bool = False
    """Whether steps may name Python functions, which are imported."""


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
        self._problems: list[Problem] = []
        """Problems of the files."""
        self.drafts: list[Draft] = []
        catalogue = Catalogue().snapshot()
        for path in paths:
            try:
                draft = read_pipeline(
                    path,
                    catalogue,
                    text=(texts or {}).get(path),
                    allow_class_paths=self._overrides.allow_class_paths,
                )
                self.drafts.append(_overridden(draft, self._overrides))
            except ConfigError as error:
                self._problems += error.problems or [
                    Problem(str(path), error.what, suggestion=error.remedy)
                ]
        for draft in self.drafts:
            self._problems += check_draft(draft)
        self._problems += _clashes(self.drafts)

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
        refuse(self._problems, self._origin)

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
        return " and ".join(draft.origin for draft in self.drafts) or "the pipelines"


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
            with self._noting(found):
                self.inflows = {
                    one.id: inflow_of(pipeline, one) for one in pipeline.sources
                }
        schemas = None
        if pipeline is not None and self.inflows is not None:
            schemas = {name: one.schema for name, one in self.inflows.items()}
            for lookup in pipeline.lookups:
                with self._noting(found):
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
        with self._noting(found):
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
        with self._noting(found):
            held.enter_context(hold(Place.of(self.built.pipeline.checkpoint)))
        return found

    def open(self, reset: str | None, ignore: str | None) -> list[Problem]:
        found: list[Problem] = []
        assert self.built is not None
        with self._noting(found):
            self.prepared = open_checkpoint(
                self.built, self.drain, reset=reset, ignore=ignore
            )
        return found

    @contextmanager
    def _noting(self, found: list[Problem]) -> Iterator[None]:
        """Collect permanent errors as problems; transient ones are raised."""
        try:
            yield
        except StreamError as error:
            if error.retryable:
                raise
            inner = error.problems if isinstance(error, ConfigError) else []
            found += inner or [
                Problem(self.draft.name, error.what, self.draft.origin, error.remedy)
            ]


def _overridden(draft: Draft, over: Overrides) -> Draft:
    pipeline = draft.pipeline
    if pipeline is None:
        return draft
    trigger = pipeline.trigger
    if over.pace == ONCE:
        trigger = Trigger()
    elif over.pace == CONTINUOUS:
        trigger = Trigger(trigger.millis or 0)
    settings = {**pipeline.spark, **over.settings}
    return replace(draft, pipeline=replace(pipeline, trigger=trigger, spark=settings))


def _clashes(drafts: Sequence[Draft]) -> Iterator[Problem]:
    names: dict[str, str] = {}
    places: dict[str, str] = {}
    for draft in drafts:
        if draft.name in names:
            what = f"two pipelines are named {draft.name!r}: see {names[draft.name]}"
            yield Problem("name", what, draft.origin)
        names.setdefault(draft.name, draft.origin)
        if draft.pipeline is not None:
            folder = draft.pipeline.checkpoint
            try:
                place = Place.of(folder).text
            except PositionRefused:
                continue  # reported already
            if place in places:
                what = f"{folder!r} is the checkpoint of {places[place]} too"
                yield Problem("checkpoint", what, draft.origin)
            places.setdefault(place, draft.origin)
