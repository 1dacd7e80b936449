"""Results of tests: the rows that came out beside the expected ones. Needs no Spark."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

from streamfactory.spark.pipelines.testing.differences import Difference, difference
from streamfactory.spark.pipelines.testing.rows import expected_rows, given_rows, total
from streamfactory.spi import Problem, StreamError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from streamfactory.spark.pipelines.testing.cases import Case, Expected, Rows, Suite


@dataclass(frozen=True, slots=True)
class Compared:
    """The rows of one step or sink, compared with the expected ones."""

    expected: Expected
    actual: tuple[pa.Table, ...]
    """By batch; one table for all if the test expects that."""
    differences: Mapping[int, Difference]
    """By batch."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one test."""

    case: Case
    compared: tuple[Compared, ...]
    failure: str | None
    """Why it could not be compared."""
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether everything is as expected."""
        return self.failure is None and not any(
            one.differences for one in self.compared
        )

    def lines(self) -> Iterator[str]:
        """Why it failed, as text; nothing if it passed."""
        if self.failure is not None:
            yield self.failure
        for one in self.compared:
            for batch, unlike in one.differences.items():
                place = "" if one.expected.whole else f", batch {batch + 1}"
                yield f"expect.{one.expected.name}{place}: {unlike}"
                yield from (f"  {line}" for line in unlike.lines())


def row_problems(
    suite: Suite, schema_of: Callable[[str], pa.Schema]
) -> Iterator[Problem]:
    """Problems of the rows of all tests: of files, columns and types.

    Args:
        suite: The tests.
        schema_of: Returns the schema of an id; raises a `StreamError` if it has none
            that rows can be compared in.
    """

    def look(key: str, rows: Rows, of: str | Expected) -> Iterator[Problem]:
        try:
            if isinstance(of, str):
                given_rows(rows, schema_of(of))
                return
            found = expected_rows(rows, schema_of(of.id))
            for name in of.key:
                if name not in found.column_names and len(found):
                    what = f"the key {name!r} is no column of the expected rows"
                    yield Problem(key, what, rows.origin)
        except StreamError as error:
            yield Problem(key, error.what, rows.origin, error.remedy)

    for case in suite.cases:
        for name, batches in case.given.items():
            for rows in batches:
                yield from look(f"given.{name}", rows, name)
        for one in case.expected:
            for rows in one.batches:
                yield from look(f"expect.{one.name}", rows, one)


def compare(
    expected: Expected,
    schema: pa.Schema,
    batches: Sequence[pa.Table],
    *,
    replaces: bool,
) -> Compared:
    """Compare the rows of an id with the expected ones.

    Args:
        expected: The expected rows.
        schema: Of the rows.
        batches: The rows that came out.
        replaces: Whether a batch has all rows, in place of those of before.
    """
    wanted = [expected_rows(one, schema) for one in expected.batches]
    if expected.whole:
        parts = batches[-1:] if replaces else batches
        actual: Sequence[pa.Table] = [total(parts, schema)]
    else:
        actual = _trimmed(batches, len(wanted))
    differences = {}
    pairs = zip_longest(wanted, actual, fillvalue=schema.empty_table())
    for number, (one, other) in enumerate(pairs):
        found = difference(one, other, expected.key)
        if found is not None:
            differences[number] = found
    return Compared(expected, tuple(actual), differences)


def _trimmed(batches: Sequence[pa.Table], count: int) -> Sequence[pa.Table]:
    """Batches without empty ones at the end that are not expected."""
    while len(batches) > count and not len(batches[-1]):
        batches = batches[:-1]
    return batches


def unlike(wanted: str, failure: str | None) -> str | None:
    """Why a test that is to fail did not; None if it failed as it should."""
    if failure is None:
        return f"did not fail, expected {wanted!r}"
    return None if wanted in failure else f"failed with {failure}, expected {wanted!r}"
