"""Pipelines from their files to their end: what ``streamfactory run`` does."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from streamfactory.spark.pipelines.checking import check_draft, refuse
from streamfactory.spark.pipelines.definition import Draft, read_pipeline
from streamfactory.spark.pipelines.options import Trigger
from streamfactory.spark.pipelines.preparing import (
    asked_schema,
    check_sql,
    prepare,
)
from streamfactory.spark.pipelines.running import run_prepared
from streamfactory.spi import ConfigError, Problem, StreamError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from streamfactory.spark.pipelines.preparing import Prepared
    from streamfactory.spark.pipelines.progress import Batch
    from streamfactory.spark.pipelines.running import Outcome
    from streamfactory.spark.pipelines.sql import Analysis

ONCE: Final = "once"
CONTINUOUS: Final = "continuous"


@dataclass(frozen=True, slots=True)
class Overrides:
    """What a command line says of all pipelines that it runs."""

    pace: str | None = None
    """``once``: all there is now; ``continuous``: on and on; None: as each says."""
    reset: str | None = None
    ignore: str | None = None


@final
class Pipelines:
    """Pipelines read from files, to be run together.

    Args:
        paths: Of their files.
        overrides: Of all of them.
    """

    def __init__(
        self, paths: Sequence[Path], overrides: Overrides | None = None
    ) -> None:
        self._overrides = overrides or Overrides()
        self._problems: list[Problem] = []
        self.drafts: list[Draft] = []
        for path in paths:
            try:
                self.drafts.append(_paced(read_pipeline(path), self._overrides.pace))
            except ConfigError as error:
                self._problems += error.problems or [
                    Problem(str(path), error.what, suggestion=error.remedy)
                ]
        for draft in self.drafts:
            self._problems += check_draft(draft)
        self._problems += _clashes(self.drafts)

    @property
    def settings(self) -> dict[str, str]:
        """What the pipelines want of a Spark that is started for them."""
        found: dict[str, str] = {}
        for draft in self.drafts:
            if draft.pipeline is not None:
                found |= draft.pipeline.spark
        return found

    def run(
        self,
        spark: SparkSession,
        stop: threading.Event,
        tell: Callable[[Batch], None],
    ) -> list[Outcome]:
        """Run them side by side until each has ended.

        Args:
            spark: A session; the pipelines work in others of its Spark.
            stop: Once it is set, all finish what they have begun, and end.
            tell: Called with each committed batch.

        Raises:
            ConfigError: config; with every problem of all of them. None was started.
            TransientError: transient; a stream could not be asked.
        """
        with self.prepared(spark) as prepared:
            return run_prepared(prepared, stop, tell)

    @contextmanager
    def prepared(self, spark: SparkSession) -> Iterator[list[Prepared]]:
        """Check all that can be checked, and build the queries."""
        analyses = [self._analyse(spark, draft) for draft in self.drafts]
        refuse(self._problems, self._origin)
        with ExitStack() as stack:
            folder = tempfile.TemporaryDirectory(prefix="streamfactory-")
            found = []
            for number, (draft, analysis) in enumerate(
                zip(self.drafts, analyses, strict=True)
            ):
                drain = Path(stack.enter_context(folder) if not number else folder.name)
                one = self._prepare(spark, draft, analysis, drain / str(number))
                found += [one] if one is not None else []
            refuse(self._problems, self._origin)
            yield found

    def _analyse(self, spark: SparkSession, draft: Draft) -> Analysis:
        schema = None
        if draft.pipeline is not None and not check_draft(draft):
            try:
                schema = asked_schema(draft)
            except StreamError as error:
                self._note(draft, error)
        analysis, problems = check_sql(spark, draft, schema)
        self._problems += problems
        return analysis

    def _prepare(
        self, spark: SparkSession, draft: Draft, analysis: Analysis, drain: Path
    ) -> Prepared | None:
        over = self._overrides
        try:
            return prepare(
                spark, draft, analysis, drain, reset=over.reset, ignore=over.ignore
            )
        except StreamError as error:
            self._note(draft, error)
            return None

    def _note(self, draft: Draft, error: StreamError) -> None:
        """Keep a problem, to be told with all others; what may pass is raised."""
        if error.retryable:
            raise error
        inner = error.problems if isinstance(error, ConfigError) else []
        self._problems += inner or [
            Problem(draft.name, error.what, draft.origin, error.remedy)
        ]

    @property
    def _origin(self) -> str:
        return " and ".join(draft.origin for draft in self.drafts) or "the pipelines"


def _paced(draft: Draft, pace: str | None) -> Draft:
    if pace is None or draft.pipeline is None:
        return draft
    trigger = Trigger()
    if pace == CONTINUOUS:
        trigger = Trigger(draft.pipeline.trigger.millis or 0)
    return replace(draft, pipeline=replace(draft.pipeline, trigger=trigger))


def _clashes(drafts: Sequence[Draft]) -> Iterator[Problem]:
    names: dict[str, str] = {}
    places: dict[str, str] = {}
    for draft in drafts:
        if draft.name in names:
            what = f"two pipelines are named {draft.name!r}: see {names[draft.name]}"
            yield Problem("name", what, draft.origin)
        names.setdefault(draft.name, draft.origin)
        if draft.pipeline is not None:
            place = draft.pipeline.checkpoint.rstrip("/")
            if place in places:
                what = f"{place!r} is the checkpoint of {places[place]} too"
                yield Problem("checkpoint", what, draft.origin)
            places.setdefault(place, draft.origin)
