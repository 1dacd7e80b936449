"""Finds the tests of pipelines, and runs them on one Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from streamfactory.spark.pipelines.checking import check_draft
from streamfactory.spark.pipelines.deadletters import declared_inflow
from streamfactory.spark.pipelines.definition import read_pipeline
from streamfactory.spark.pipelines.preparing import apply_settings, check_sql
from streamfactory.spark.pipelines.problems import errors, refuse
from streamfactory.spark.pipelines.sql import session_like
from streamfactory.spark.pipelines.testing.cases import read_suite, tests_of
from streamfactory.spark.pipelines.testing.running import Result, Runner
from streamfactory.spark.types import spark_schema
from streamfactory.spi import ConfigError, Problem
from streamfactory.spi.arrowjson import parse_schema
from streamfactory.wiring.config.catalogue import Catalogue

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from streamfactory.spark.pipelines.model import Draft, Lookup, Pipeline
    from streamfactory.spark.pipelines.testing.cases import Suite

SETTINGS: Final = {
    # Rows of tests are few. Their order, and the hours of a day, are those everywhere.
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.session.timeZone": "UTC",
    # Streams filter no rows themselves: what a step refuses must reach it.
    "spark.sql.parquet.filterPushdown": "false",
}
"""Settings of Spark for tests, unless the pipeline has others."""


@dataclass(frozen=True, slots=True)
class Tested:
    """One pipeline and its tests."""

    draft: Draft
    pipeline: Pipeline
    suite: Suite


@final
class Suites:
    """The tests of pipelines.

    Args:
        paths: Files of pipelines that have tests.
        allow_class_paths: Whether steps may name Python functions.

    Raises:
        ConfigError: config; with all problems of pipelines and tests that can be found
            without Spark.
    """

    def __init__(self, paths: Sequence[Path], *, allow_class_paths: bool) -> None:
        problems: list[Problem] = []
        self.tested: list[Tested] = []
        catalogue = Catalogue().snapshot()
        for path in paths:
            try:
                draft = read_pipeline(
                    path, catalogue, allow_class_paths=allow_class_paths
                )
                found = check_draft(draft)
                problems += found
                if draft.pipeline is None or errors(found):
                    continue
                suite = read_suite(tests_of(path), draft.pipeline)
            except ConfigError as error:
                problems += error.problems or [
                    Problem(str(path), error.what, suggestion=error.remedy)
                ]
                continue
            problems += suite.problems
            self.tested.append(Tested(draft, draft.pipeline, suite))
        refuse(problems, ", ".join(map(str, paths)))

    @property
    def settings(self) -> dict[str, str]:
        """Settings for a Spark session that is started for the tests."""
        found = dict(SETTINGS)
        for one in self.tested:
            found |= one.pipeline.spark
        return found

    def run(self, spark: SparkSession) -> Iterator[tuple[Tested, Result]]:
        """Run all tests.

        Raises:
            ConfigError: config; with all problems of queries and rows. No test was run.
        """
        problems: list[Problem] = []
        runners = []
        for one in self.tested:
            session = session_like(spark)
            for key, value in SETTINGS.items():
                session.conf.set(key, value)
            apply_settings(session, one.pipeline)
            schemas: dict[str, StructType] = {}
            problems += _columns(one, schemas)
            if len(schemas) < len(one.pipeline.sources) + len(one.pipeline.lookups):
                continue
            analysis, found = check_sql(session, one.draft, schemas)
            problems += found
            if not errors(found):
                runner = Runner(session, one.pipeline, analysis, one.suite)
                problems += runner.problems()
                runners.append((one, runner))
        refuse(problems, ", ".join(str(one.suite.path) for one in self.tested))
        for one, runner in runners:
            for result in runner.results():
                yield one, result


def _columns(one: Tested, schemas: dict[str, StructType]) -> Iterator[Problem]:
    """Add the columns of sources and lookups; yields which are not known."""
    for source in one.pipeline.sources:
        given, inflow = one.suite.schemas.get(source.id), None
        if given is None:
            inflow = declared_inflow(source.stream)
        if given is not None:
            schemas[source.id] = spark_schema(given)
        elif inflow is not None:
            schemas[source.id] = inflow.schema
        else:
            yield _unknown(one, source.id, "source")
    for lookup in one.pipeline.lookups:
        found = one.suite.schemas.get(lookup.id)
        declared = None if found is None else spark_schema(found)
        declared = declared or _declared(lookup)
        if declared is None:
            yield _unknown(one, lookup.id, "lookup")
        else:
            schemas[lookup.id] = declared


def _declared(lookup: Lookup) -> StructType | None:
    """The declared columns of a lookup. The table is not read."""
    if lookup.stream is not None:
        inflow = declared_inflow(lookup.stream)
        return None if inflow is None else inflow.schema
    if lookup.schema is None:
        return None
    return spark_schema(parse_schema(lookup.schema))


def _unknown(one: Tested, name: str, kind: str) -> Problem:
    what = f"the columns of the {kind} {name!r} are not known: tests contact no stream"
    hint = f'write schemas.{name} = "id bigint, ..." on top of {one.suite.path.name}'
    return Problem("schemas", what, str(one.suite.path), hint)
