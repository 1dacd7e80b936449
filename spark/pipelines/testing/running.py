"""Runs tests of pipelines: each input is a stream of files, one a batch.

Real micro-batches of Spark, with watermarks and state; no stream of the pipeline is
contacted, and its checkpoint is not used.
"""

from __future__ import annotations

import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from py4j.protocol import Py4JError
from pyarrow import parquet
from pyspark.errors import PySparkException

from streamfactory.spark.failures import describe_failure, words_of
from streamfactory.spark.pipelines.functions import rows_of
from streamfactory.spark.pipelines.sql import (
    distinct,
    errors_of,
    session_like,
    with_watermark,
)
from streamfactory.spark.pipelines.testing.comparing import (
    Compared,
    Result,
    compare,
    row_problems,
    unlike,
)
from streamfactory.spark.pipelines.testing.rows import given_rows, total
from streamfactory.spark.pipelines.trees import unsupported
from streamfactory.spark.types import arrow_schema
from streamfactory.spi import ConfigError, StreamError, TransientError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from streamfactory.spark.pipelines.model import Pipeline
    from streamfactory.spark.pipelines.sql import Analysis
    from streamfactory.spark.pipelines.testing.cases import Case, Suite
    from streamfactory.spi import Problem

_TOGETHER: Final = 2
"""Tests that run at the same time: most of a small query is waiting."""
_LONGEST: Final = 300
"""Seconds of one query."""
_EPOCH: Final = 1_700_000_000
"""Time of the first file: Spark reads files in the order of their times."""


@dataclass(frozen=True, slots=True)
class _Output:
    """The rows that came out of one id."""

    batches: Sequence[pa.Table]
    replaces: bool
    """Whether a batch has all rows, in place of those of before."""


class Runner:
    """Runs the tests of one pipeline.

    Args:
        spark: Any session; it is not changed.
        pipeline: A pipeline without problems.
        analysis: Its analysis.
        suite: Its tests.
    """

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        analysis: Analysis,
        suite: Suite,
    ) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._analysis = analysis
        self._suite = suite
        self._steps = {step.id: step for step in pipeline.steps}
        self._schemas: dict[str, pa.Schema] = {}

    def problems(self) -> Iterator[Problem]:
        """Problems of the rows of all tests: of files, columns and types."""
        return row_problems(self._suite, self._schema)

    def results(self) -> Iterator[Result]:
        """Run the tests, some at the same time. Results have their order."""
        pool = ThreadPoolExecutor(_TOGETHER, "streamfactory-test")
        try:
            yield from pool.map(self._result, self._suite.cases)
        finally:
            # After a signal nothing waits for a query: its session ends it.
            pool.shutdown(wait=False, cancel_futures=True)

    def _result(self, case: Case) -> Result:
        began = time.monotonic()
        compared, failure = tuple[Compared, ...](), None
        try:
            compared = self._compared(case)
        except (PySparkException, Py4JError, StreamError) as error:
            failure = _words(error)
        if case.fails is not None:
            failure = unlike(case.fails, failure)
        return Result(case, compared, failure, time.monotonic() - began)

    def _schema(self, name: str) -> pa.Schema:
        if name not in self._schemas:
            try:
                self._schemas[name] = arrow_schema(self._analysis.schemas[name])
            except PySparkException as error:  # such as an interval of months
                msg = f"the rows of {name!r} cannot be compared: {words_of(error)}"
                raise ConfigError(msg, remedy="expect those of another step") from error
        return self._schemas[name]

    # --- one test ---

    def _compared(self, case: Case) -> tuple[Compared, ...]:
        with tempfile.TemporaryDirectory(prefix="streamfactory-") as folder:
            work = Path(folder)
            session = self._inputs(case, work)
            # A test that is to fail does so wherever its rows arrive.
            outputs = {one.id: None for one in case.expected} or {
                one.rows: None for one in self._pipeline.targets
            }
            found = {
                name: self._output(session, name, work / f"checkpoint-{number}")
                for number, name in enumerate(outputs)
            }
        return tuple(
            compare(one, self._schema(one.id), out.batches, replaces=out.replaces)
            for one in case.expected
            for out in [found[one.id]]
        )

    def _inputs(self, case: Case, work: Path) -> SparkSession:
        """A session with the views of all sources, lookups and steps."""
        session = session_like(self._spark)
        sources = {one.id: one for one in self._pipeline.sources}
        counts = [len(case.given.get(name, ())) for name in sources]
        for name, source in sources.items():
            schema = self._schema(name)
            batches = [given_rows(one, schema) for one in case.given.get(name, ())]
            batches += [schema.empty_table()] * (max(1, *counts) - len(batches))
            frame = _stream(session, work / name, batches, self._analysis.schemas[name])
            with_watermark(frame, source.watermark).createOrReplaceTempView(name)
        for lookup in self._pipeline.lookups:
            schema = self._schema(lookup.id)
            given = case.given.get(lookup.id, ())
            rows = total((given_rows(one, schema) for one in given), schema)
            frame = session.createDataFrame(rows, self._analysis.schemas[lookup.id])
            frame.createOrReplaceTempView(lookup.id)
        needed = set[str]()
        for expected in case.expected:
            needed |= self._analysis.reach(expected.id)
        if not case.expected:
            needed = set(self._steps)
        for name in self._analysis.order:
            if name in self._steps and name in needed:
                step = self._steps[name]
                with errors_of(step):
                    rows = with_watermark(rows_of(session, step), step.watermark)
                    distinct(rows, step).createOrReplaceTempView(name)
        return session

    def _output(self, session: SparkSession, name: str, work: Path) -> _Output:
        """The rows of an id."""
        frame, schema = session.table(name), self._schema(name)
        if not frame.isStreaming:  # a step that reads lookups only
            return _Output([frame.toArrow().cast(schema)], replaces=False)
        found: dict[int, pa.Table] = {}
        failures: list[Exception] = []

        def keep(batch: DataFrame, number: int) -> None:
            try:
                found[number] = batch.toArrow().cast(schema)
            except Exception as error:
                # The error loses its details on its way through Java.
                failures.append(error)
                raise

        mode = self._mode(session, frame)
        writer = frame.writeStream.outputMode(mode)
        writer = writer.option("checkpointLocation", str(work))
        query = writer.foreachBatch(keep).trigger(availableNow=True).start()
        try:
            if not query.awaitTermination(_LONGEST):
                msg = f"the rows of {name!r} took more than {_LONGEST} s"
                raise TransientError(msg)
        except PySparkException as error:
            raise (failures[0] if failures else error) from error
        finally:
            query.stop()
        numbers = range(max(found) + 1)
        batches = [found.get(number, schema.empty_table()) for number in numbers]
        return _Output(batches, replaces=mode == "complete")

    def _mode(self, session: SparkSession, frame: DataFrame) -> str:
        """The pipeline's mode; for a step before its aggregation, append."""
        mode = self._pipeline.mode
        if mode == "complete" and unsupported(session, frame, mode) is not None:
            return "append"
        return mode


def _stream(
    session: SparkSession, folder: Path, batches: Sequence[pa.Table], schema: StructType
) -> DataFrame:
    """A stream with one batch for each table."""
    folder.mkdir()
    for number, rows in enumerate(batches):
        path = folder / f"{number:06}.parquet"
        parquet.write_table(rows, path)
        os.utime(path, (_EPOCH + number, _EPOCH + number))
    reader = session.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(folder))


def _words(error: Exception) -> str:
    """The cause of a failure: that of the user's query, not of Spark's machinery."""
    if isinstance(error, ConfigError):
        return str(error.problems[0].what if error.problems else error.what)
    if isinstance(error, StreamError):
        return error.what
    return describe_failure(error)
