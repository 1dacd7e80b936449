"""Parses the file of a pipeline's tests. Needs no Spark and connects to no stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from streamfactory.spark.pipelines.detection import TESTS
from streamfactory.spi import Problem
from streamfactory.spi.arrowjson import parse_schema
from streamfactory.wiring.config.documents import open_document, read_toml
from streamfactory.wiring.config.files import origin_of
from streamfactory.wiring.core.nearest import nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import pyarrow as pa

    from streamfactory.spark.pipelines.model import Pipeline
    from streamfactory.wiring.config.documents import Document

_TOP: Final = ("schemas", "tests")
_KEYS: Final = ("name", "given", "expect", "key", "fails")


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one id, as the file has them."""

    path: Path | None
    """The file that has them; None if they stand in the file of the tests."""
    records: tuple[Mapping[str, Any], ...]
    """Without a file."""
    origin: str


@dataclass(frozen=True, slots=True)
class Expected:
    """Rows that are expected of a step or a sink."""

    name: str
    """As in the file: of a sink, or the id of a step."""
    id: str
    """The id whose rows they are."""
    batches: tuple[Rows, ...]
    whole: bool
    """Whether there is one entry for the rows of all batches."""
    key: tuple[str, ...]
    """Columns that identify a row in a difference."""
    origin: str


@dataclass(frozen=True, slots=True)
class Case:
    """One test."""

    number: int
    """Of the tests of the file, from 0."""
    name: str
    given: Mapping[str, tuple[Rows, ...]]
    """Batches by id, of sources; the rows of lookups, as one batch."""
    expected: tuple[Expected, ...]
    fails: str | None
    """Part of the error with which it is to fail."""
    origin: str


@dataclass(frozen=True, slots=True)
class Suite:
    """The tests of one pipeline."""

    path: Path
    schemas: Mapping[str, pa.Schema]
    """Columns of sources and lookups, by id, that their streams do not declare."""
    cases: tuple[Case, ...]
    problems: tuple[Problem, ...]


def tests_of(pipeline: Path) -> Path:
    """The file of a pipeline's tests, which may not exist."""
    return pipeline.with_name(pipeline.stem + TESTS)


def read_suite(path: Path, pipeline: Pipeline) -> Suite:
    """Read the file of tests.

    Raises:
        ConfigError: config; the file cannot be read.
    """
    document = open_document(path)
    return _Reader(document, read_toml(document), pipeline).suite()


class _Reader:
    """Parser of one file. Problems are collected in its document."""

    def __init__(
        self, document: Document, body: Mapping[str, Any], pipeline: Pipeline
    ) -> None:
        self._document, self._body = document, body
        self._lookups = {one.id for one in pipeline.lookups}
        self._inputs = {one.id for one in pipeline.sources} | self._lookups
        steps = [one.id for one in pipeline.steps if one.of in (None, one.id)]
        ids = [*(one.id for one in pipeline.sources), *steps]
        self._outputs = {name: name for name in ids}
        self._outputs |= {one.name: one.rows for one in pipeline.targets}

    def suite(self) -> Suite:
        """The parsed file, with all its problems."""
        self._check_keys(self._body, _TOP, "")
        tests = self._body.get("tests")
        if not isinstance(tests, list) or not tests:
            self._problem("tests", "has no [[tests]]", "/tests")
            tests = []
        schemas = dict(self._schemas())
        cases = tuple(
            self._case(number, table)
            for number, table in enumerate(tests)
            if self._is_table(table, f"/tests/{number}")
        )
        names = [case.name for case in cases]
        for case in cases:
            if case.name in names[: case.number]:
                where = f"/tests/{case.number}/name"
                self._problem("name", f"{case.name!r} is a name already", where)
        problems = tuple(self._document.problems)
        return Suite(self._document.path, schemas, cases, problems)

    def _schemas(self) -> Iterator[tuple[str, pa.Schema]]:
        for name, text in self._table(self._body, "schemas", "").items():
            where = f"/schemas/{name}"
            self._check_id(name, self._inputs, where)
            try:
                yield name, parse_schema(str(text))
            except ValueError as error:
                self._problem(f"schemas.{name}", str(error), where)

    def _case(self, number: int, table: Mapping[str, Any]) -> Case:
        where = f"/tests/{number}"
        self._check_keys(table, _KEYS, where)
        name, fails = table.get("name"), table.get("fails")
        if not isinstance(name, str) or not name.strip():
            self._problem("name", "is required", where, 'write name = "..."')
        if fails is not None and not isinstance(fails, str):
            self._problem("fails", "is no text", f"{where}/fails")
        given = {}
        for one, value in self._table(table, "given", where).items():
            at = f"{where}/given/{one}"
            self._check_id(one, self._inputs, at)
            given[one] = self._batches(value, at)[0]
            if one in self._lookups and len(given[one]) > 1:
                what = f"the lookup {one!r} has several batches"
                self._problem("given", what, at, "give it one list of rows")
        keys = self._table(table, "key", where)
        expected = [
            self._expected(one, value, keys.get(one, []), where)
            for one, value in self._table(table, "expect", where).items()
        ]
        for one in keys.keys() - {one.name for one in expected}:
            self._problem("key", f"{one!r} is not expected", f"{where}/key/{one}")
        if not expected and fails is None:
            self._problem("expect", "is required, or fails", where, "expect.ID = [...]")
        return Case(number, str(name), given, tuple(expected), fails, self._at(where))

    def _expected(self, name: str, value: Any, key: Any, where: str) -> Expected:
        at = f"{where}/expect/{name}"
        self._check_id(name, self._outputs, at)
        batches, whole = self._batches(value, at)
        columns = [key] if isinstance(key, str) else key
        if not isinstance(columns, list) or not all(
            isinstance(one, str) for one in columns
        ):
            self._problem("key", "is no list of columns", f"{where}/key/{name}")
            columns = []
        found = self._outputs.get(name, name)
        return Expected(name, found, batches, whole, tuple(columns), self._at(at))

    def _batches(self, value: Any, where: str) -> tuple[tuple[Rows, ...], bool]:
        """The batches of a value, and whether it is one for all."""
        if isinstance(value, str):
            return (self._rows(value, where),), True
        if not isinstance(value, list):
            what = "is neither a file nor a list of rows, nor a list of these"
            self._problem(where.rsplit("/", 2)[1], what, where)
            return (), True
        if all(isinstance(one, dict) for one in value):
            return (self._rows(value, where),), True
        return tuple(self._rows(one, where) for one in value), False

    def _rows(self, value: Any, where: str) -> Rows:
        origin = self._at(where)
        if isinstance(value, str):
            # Relative to the file of the tests, not to the working directory.
            return Rows(self._document.path.parent / value, (), origin)
        if isinstance(value, list) and all(isinstance(one, dict) for one in value):
            return Rows(None, tuple(value), origin)
        what = "has a batch that is neither a file nor a list of rows"
        self._problem(where.rsplit("/", 2)[1], what, where)
        return Rows(None, (), origin)

    # --- checks ---

    def _table(
        self, table: Mapping[str, Any], key: str, where: str
    ) -> Mapping[str, Any]:
        found = table.get(key, {})
        return found if self._is_table(found, f"{where}/{key}") else {}

    def _is_table(self, value: Any, where: str) -> bool:
        if not isinstance(value, dict):
            self._problem(where.rpartition("/")[2], "is not a table", where)
        return isinstance(value, dict)

    def _check_keys(
        self, table: Mapping[str, Any], known: tuple[str, ...], where: str
    ) -> None:
        for key, value in table.items():
            if key not in known:
                # Dotted keys have lines, the tables that they imply have none.
                first = next(iter(value), "") if isinstance(value, dict) else ""
                what = f"is no key of {'a test' if where else 'a file of tests'}"
                at = f"{where}/{key}/{first}"
                self._problem(key, what, at, _near(key, known))

    def _check_id(
        self, name: str, known: Mapping[str, str] | set[str], where: str
    ) -> None:
        if name not in known:
            key, near = where.rsplit("/", 2)[1], _near(name, known)
            what = f"{name!r} is no id; there are {', '.join(sorted(known))}"
            self._problem(key, what, where, near)

    def _at(self, where: str) -> str:
        return origin_of(self._document, where)

    def _problem(
        self, key: str, what: str, where: str, hint: str | None = None
    ) -> None:
        self._document.problems.append(Problem(key, what, self._at(where), hint))


def _near(word: str, known: Any) -> str | None:
    found = nearest(word, known)
    return None if found is None else f"did you mean {found}?"
