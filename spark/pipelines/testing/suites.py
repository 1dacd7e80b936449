"""Finds the tests of pipelines, and runs them: on one Spark, or without it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from streamfactory.spark.pipelines.checking import check_draft
from streamfactory.spark.pipelines.deadletters import declared_schema
from streamfactory.spark.pipelines.definition import read_pipeline
from streamfactory.spark.pipelines.options import SPARK
from streamfactory.spark.pipelines.overriding import noting
from streamfactory.spark.pipelines.problems import errors, refuse
from streamfactory.spark.pipelines.testing.cases import read_suite, tests_of
from streamfactory.spi import ConfigError, Problem
from streamfactory.spi.arrowjson import parse_schema
from streamfactory.wiring.config.catalogue import Catalogue
from streamfactory.wiring.config.loading import load

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from streamfactory.spark.pipelines.model import Draft, Lookup, Pipeline
    from streamfactory.spark.pipelines.testing.cases import Suite
    from streamfactory.spark.pipelines.testing.comparing import Result
    from streamfactory.spark.pipelines.testing.rowwise import RowRunner
    from streamfactory.spark.pipelines.testing.running import Runner

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

    @property
    def need_spark(self) -> bool:
        """Whether one of the pipelines runs on Spark."""
        return any(one.draft.engine == SPARK for one in self.tested)

    def run(self, spark: SparkSession | None) -> Iterator[tuple[Tested, Result]]:
        """Run all tests.

        Args:
            spark: None if none of the pipelines needs it.

        Raises:
            ConfigError: config; with all problems of queries and rows. No test was run.
        """
        problems: list[Problem] = []
        runners: list[tuple[Tested, Runner | RowRunner]] = []
        for one in self.tested:
            schemas: dict[str, pa.Schema] = {}
            problems += _columns(one, schemas)
            if len(schemas) < len(one.pipeline.sources) + len(one.pipeline.lookups):
                continue
            runner: Runner | RowRunner | None = None
            if one.draft.engine != SPARK:
                with noting(one.draft, problems):
                    runner = _rowwise(one, schemas)
            else:
                assert spark is not None
                runner = _on_spark(spark, one, schemas, problems)
            if runner is not None:
                problems += runner.problems()
                runners.append((one, runner))
        refuse(problems, ", ".join(str(one.suite.path) for one in self.tested))
        for one, runner in runners:
            for result in runner.results():
                yield one, result


def _rowwise(one: Tested, schemas: Mapping[str, pa.Schema]) -> RowRunner:
    # Imported here: DataFusion.
    from streamfactory.spark.pipelines.rowwise.planning import plan_of
    from streamfactory.spark.pipelines.testing.rowwise import RowRunner

    [schema] = schemas.values()
    return RowRunner(plan_of(one.draft, schema), one.suite)


def _on_spark(
    spark: SparkSession,
    one: Tested,
    columns: Mapping[str, pa.Schema],
    problems: list[Problem],
) -> Runner | None:
    """What runs the tests; None if the queries have problems, which are added."""
    # Imported here: they load Spark.
    from streamfactory.spark.pipelines.preparing import apply_settings, check_sql
    from streamfactory.spark.pipelines.sql import session_like
    from streamfactory.spark.pipelines.testing.running import Runner
    from streamfactory.spark.types import spark_schema

    session = session_like(spark)
    for key, value in SETTINGS.items():
        session.conf.set(key, value)
    apply_settings(session, one.pipeline)
    schemas = {name: spark_schema(schema) for name, schema in columns.items()}
    analysis, found = check_sql(session, one.draft, schemas)
    problems += found
    if errors(found):
        return None
    return Runner(session, one.pipeline, analysis, one.suite)


def _columns(one: Tested, schemas: dict[str, pa.Schema]) -> Iterator[Problem]:
    """Add the columns of sources and lookups; yields which are not known."""
    for source in one.pipeline.sources:
        found = one.suite.schemas.get(source.id)
        if found is None:
            found = declared_schema(load(source.stream, "spark"))
        if found is None:
            yield _unknown(one, source.id, "source")
        else:
            schemas[source.id] = found
    for lookup in one.pipeline.lookups:
        found = one.suite.schemas.get(lookup.id)
        if found is None:
            found = _declared(lookup)
        if found is None:
            yield _unknown(one, lookup.id, "lookup")
        else:
            schemas[lookup.id] = found


def _declared(lookup: Lookup) -> pa.Schema | None:
    """The declared columns of a lookup. The table is not read."""
    if lookup.stream is not None:
        return declared_schema(load(lookup.stream, "spark"))
    return None if lookup.schema is None else parse_schema(lookup.schema)


def _unknown(one: Tested, name: str, kind: str) -> Problem:
    what = f"the columns of the {kind} {name!r} are not known: tests contact no stream"
    hint = f'write schemas.{name} = "id bigint, ..." on top of {one.suite.path.name}'
    return Problem("schemas", what, str(one.suite.path), hint)
