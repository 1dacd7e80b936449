"""Runs tests of pipelines without Spark: the steps, over the rows of each batch."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, final

import pyarrow as pa

from streamfactory.spark.pipelines.rowwise.steps import Tree, as_batch
from streamfactory.spark.pipelines.testing.comparing import (
    Compared,
    Result,
    compare,
    row_problems,
    unlike,
)
from streamfactory.spark.pipelines.testing.rows import given_rows
from streamfactory.spi import StreamError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.spark.pipelines.rowwise.planning import Plan
    from streamfactory.spark.pipelines.testing.cases import Case, Suite
    from streamfactory.spi import Problem


@final
class RowRunner:
    """Runs the tests of one pipeline.

    Args:
        plan: Its steps.
        suite: Its tests.
    """

    def __init__(self, plan: Plan, suite: Suite) -> None:
        self._plan, self._suite = plan, suite

    def problems(self) -> Iterator[Problem]:
        """Problems of the rows of all tests: of files, columns and types."""
        return row_problems(self._suite, self._plan.schemas.__getitem__)

    def results(self) -> Iterator[Result]:
        """Run the tests."""
        return map(self._result, self._suite.cases)

    def _result(self, case: Case) -> Result:
        began = time.monotonic()
        compared, failure = tuple[Compared, ...](), None
        try:
            compared = self._compared(case)
        except StreamError as error:
            failure = error.what
        if case.fails is not None:
            failure = unlike(case.fails, failure)
        return Result(case, compared, failure, time.monotonic() - began)

    def _compared(self, case: Case) -> tuple[Compared, ...]:
        schemas = self._plan.schemas
        # A test that is to fail does so wherever its rows arrive.
        wanted = {one.id for one in case.expected} or set(schemas)
        tree, source = Tree(self._plan, frozenset(wanted)), self._plan.source
        found = dict[str, list[pa.Table]]((name, []) for name in wanted)
        for number, given in enumerate(case.given.get(source, ())):
            rows = as_batch(given_rows(given, schemas[source]))
            made = tree.rows(f"batch {number + 1}", rows, Counter())
            for name in wanted:
                table = pa.Table.from_batches([made[name]])
                found[name].append(table.cast(schemas[name]))
        return tuple(
            compare(one, schemas[one.id], found[one.id], replaces=False)
            for one in case.expected
        )
