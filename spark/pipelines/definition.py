"""A pipeline as its file says: a source, steps of SQL, sinks, and how to run."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from streamfactory.spark.pipelines.options import (
    PIPELINE_OPTIONS,
    SINK_OPTIONS,
    SOURCE_OPTIONS,
    STEP_OPTIONS,
)
from streamfactory.spi import ConfigError
from streamfactory.wiring.catalogue import Catalogue
from streamfactory.wiring.documents import (
    flat,
    open_document,
    read_toml,
)
from streamfactory.wiring.settling import Settler, by_spelling

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from streamfactory.spark.pipelines.options import Trigger
    from streamfactory.spi import Option, Problem
    from streamfactory.wiring.definition import Property, StreamDefinition
    from streamfactory.wiring.documents import Document

INPUT: Final = "input"
"""The id of the source's rows, where the file gives it no other."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_ID: Final = re.compile("[A-Za-z_][A-Za-z0-9_]{0,99}")
_TABLES: Final = ("source", "steps", "sinks", "dead-letters", "spark")


@dataclass(frozen=True, slots=True)
class Watermark:
    """How late rows may come, by their event time, before Spark drops them."""

    column: str
    delay: str
    """An interval as Spark reads it: ``10 minutes``."""


@dataclass(frozen=True, slots=True)
class Step:
    """One query, and the name that it has in later ones."""

    id: str
    sql: str
    watermark: Watermark | None
    origin: str


@dataclass(frozen=True, slots=True)
class Outlet:
    """A sink: where the rows of one id go."""

    name: str
    """Unlike all others of the pipeline: who writes is known by it."""
    rows: str
    """The id whose rows it takes."""
    stream: StreamDefinition
    origin: str


@dataclass(frozen=True, slots=True)
class Hook:
    """What is called after each committed batch."""

    command: str | None
    entry_point: str | None
    on_failure: str
    timeout: float
    """Seconds."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One pipeline. Every part of it is there; nothing was asked of any stream."""

    name: str
    description: str
    origin: str
    """The file."""
    source: StreamDefinition
    source_id: str
    watermark: Watermark | None
    steps: tuple[Step, ...]
    sinks: tuple[Outlet, ...]
    dead_letters: Outlet | None
    trigger: Trigger
    mode: str
    """``append``, ``update`` or ``complete``."""
    checkpoint: str
    """A folder, or its URL."""
    idle_rounds: int | None
    hook: Hook
    spark: Mapping[str, str] = field(default_factory=dict)
    """Settings of the session."""

    @property
    def outlets(self) -> tuple[Outlet, ...]:
        """All sinks, that of dead letters among them."""
        return self.sinks + (() if self.dead_letters is None else (self.dead_letters,))


@dataclass(frozen=True, slots=True)
class Draft:
    """What a file says, as far as it can be read, and what is wrong with it."""

    name: str
    origin: str
    source_id: str
    steps: tuple[Step, ...]
    sinks: tuple[Outlet, ...]
    pipeline: Pipeline | None
    """None where there are problems."""
    problems: tuple[Problem, ...]


def read_pipeline(path: Path) -> Draft:
    """Read a pipeline's file; the streams that it names are looked up, none is asked.

    Args:
        path: Of a TOML file.

    Raises:
        ConfigError: config; it cannot be read at all.
    """
    if path.suffix.lower() != ".toml":
        msg = f"{str(path)!r} is no pipeline: that is a TOML file"
        raise ConfigError(msg)
    document = open_document(path)
    return _Reader(document, read_toml(document)).draft()


def is_pipeline(path: Path) -> bool:
    """Whether a file is one of a pipeline, and not of streams."""
    if path.suffix.lower() != ".toml" or not path.is_file():
        return False
    try:
        body = read_toml(open_document(path))
    except ConfigError:
        return False
    return "properties" not in body and bool({"source", "sinks"} & set(body))


class _Reader:
    """One file while it is read."""

    def __init__(self, document: Document, body: Mapping[str, Any]) -> None:
        self._document = document
        self._body = body
        self._catalogue = Catalogue()

    def draft(self) -> Draft:
        """All that there is to say about the file."""
        top = {key: value for key, value in self._body.items() if key not in _TABLES}
        options = self._settle(top, "", PIPELINE_OPTIONS)
        source, own = self._stream(self._table("source"), "/source", SOURCE_OPTIONS)
        source_id = str(own.get("id", INPUT))
        self._check_id(source_id, "/source")
        steps = tuple(
            self._step(table, f"/steps/{index}")
            for index, table in enumerate(self._tables("steps"))
        )
        sinks, dead = self._outlets(steps[-1].id if steps else source_id, source_id)
        self._check_ids([source_id, *(step.id for step in steps)])
        spark = self._spark()
        name = str(options.get("name", self._document.path.stem))
        problems = tuple(self._document.problems)
        origin = str(self._document.path)
        pipeline = None
        if not problems and source is not None:
            pipeline = Pipeline(
                name=name,
                description=options["description"],
                origin=origin,
                source=source,
                source_id=source_id,
                watermark=_watermark(own),
                steps=steps,
                sinks=sinks,
                dead_letters=dead,
                trigger=options["trigger"],
                mode=options["output.mode"],
                checkpoint=options["checkpoint"],
                idle_rounds=options.get("idle.stop.rounds"),
                hook=_hook(options),
                spark=spark,
            )
        return Draft(name, origin, source_id, steps, sinks, pipeline, problems)

    def _outlets(
        self, last: str, source_id: str
    ) -> tuple[tuple[Outlet, ...], Outlet | None]:
        sinks = [
            self._outlet(table, f"/sinks/{index}", last)
            for index, table in enumerate(self._tables("sinks"))
        ]
        if not sinks:
            self._problem("sinks", "a pipeline needs a sink", "", "add [[sinks]]")
        dead = None
        if "dead-letters" in self._body:
            table = {"name": "dead-letters", **self._table("dead-letters")}
            dead = self._outlet(table, "/dead-letters", source_id)
        self._check_names([*sinks, dead])
        return tuple(one for one in sinks if one is not None), dead

    # --- tables -----------------------------------------------------------------

    def _table(self, key: str) -> Mapping[str, Any]:
        table = self._body.get(key)
        if isinstance(table, dict):
            return table
        wrong = "is missing" if table is None else "is not a table"
        self._problem(key, wrong, f"/{key}", f"write [{key}]")
        return {}

    def _tables(self, key: str) -> list[Mapping[str, Any]]:
        tables = self._body.get(key, [])
        if isinstance(tables, list) and all(isinstance(t, dict) for t in tables):
            return tables
        hint = f"write [[{key}]] before each"
        self._problem(key, "is not an array of tables", f"/{key}", hint)
        return []

    def _step(self, table: Mapping[str, Any], pointer: str) -> Step:
        options = self._settle(table, pointer, STEP_OPTIONS)
        name = str(options.get("id", ""))
        if name:
            self._check_id(name, pointer)
        return Step(
            name, self._sql(options, pointer), _watermark(options), self._at(pointer)
        )

    def _sql(self, options: Mapping[str, Any], pointer: str) -> str:
        sql, file = options.get("sql"), options.get("sql.file")
        if (sql is None) == (file is None):
            what = "wants one of sql and sql.file"
            self._problem("steps", what, pointer)
            return ""
        if sql is not None:
            return str(sql).strip().rstrip(";")
        # Beside the file that names it, wherever the command is run.
        path = self._document.path.parent / str(file)
        try:
            return open_document(path).text.strip().rstrip(";")
        except ConfigError as error:
            self._problem("sql.file", error.what, f"{pointer}/sql.file")
            return ""

    def _outlet(
        self, table: Mapping[str, Any], pointer: str, last: str
    ) -> Outlet | None:
        stream, own = self._stream(table, pointer, SINK_OPTIONS)
        if stream is None:
            return None
        name = str(own.get("name", stream.name))
        if _NAME.fullmatch(name) is None:
            what = f"{name!r} is no name: letters, digits, dots, dashes"
            self._problem("name", what, f"{pointer}/name")
        return Outlet(name, str(own.get("from", last)), stream, self._at(pointer))

    def _stream(
        self, table: Mapping[str, Any], pointer: str, options: Sequence[Option]
    ) -> tuple[StreamDefinition | None, Mapping[str, Any]]:
        """A named stream with what the table replaces, and the pipeline's own words."""
        known = by_spelling(options)
        properties = list(flat(self._document, table, pointer))
        own = [prop for prop in properties if prop.key.lower() in known]
        others = {p.key: p.text for p in properties if p.key.lower() not in known}
        settled = self._settled(own, pointer, options)
        name = settled.get("stream")
        if name is None:
            return None, settled
        try:
            found = self._catalogue.find(str(name))
        except ConfigError as error:
            where = f"{pointer}/stream"
            problems = error.problems if len(error.problems) > 1 else []
            self._problem("stream", error.what, where, error.remedy)
            self._document.problems += problems
            return None, settled
        if len(found) != 1:
            what = f"{name} holds {len(found)} streams, wanted one"
            self._problem("stream", what, f"{pointer}/stream")
            return None, settled
        return found[0].with_overrides(others), settled

    def _spark(self) -> dict[str, str]:
        table = self._body.get("spark", {})
        if not isinstance(table, dict):
            self._problem("spark", "is not a table", "/spark", "write [spark]")
            return {}
        found = {}
        for prop in flat(self._document, table, "/spark", "spark."):
            found[prop.key.replace("spark.spark.", "spark.", 1)] = prop.text
        return found

    # --- options ----------------------------------------------------------------

    def _settle(
        self, table: Mapping[str, Any], pointer: str, options: Sequence[Option]
    ) -> Mapping[str, Any]:
        properties = list(flat(self._document, table, pointer))
        return self._settled(properties, pointer, options)

    def _settled(
        self, properties: Sequence[Property], pointer: str, options: Sequence[Option]
    ) -> Mapping[str, Any]:
        known = by_spelling(options)
        given: dict[str, list[Property]] = {}
        for prop in properties:
            option = known.get(prop.key.lower())
            if option is not None:
                given.setdefault(option.key, []).append(prop)
                continue
            near = difflib.get_close_matches(prop.key.lower(), known, n=1)
            hint = f"did you mean {near[0]}?" if near else None
            what = "is no option of " + (
                f"[{pointer.split('/')[1]}]" if pointer else "a pipeline"
            )
            self._problem(prop.key, what, None, hint, prop.origin)
        problems: list[Problem] = []
        settings = Settler(problems, "pipeline").settle(options, given, "")
        self._document.problems += [
            replace(problem, origin=problem.origin or self._at(pointer))
            for problem in problems
        ]
        return {key: setting.value for key, setting in settings.items()}

    # --- checks -----------------------------------------------------------------

    def _check_id(self, name: str, pointer: str) -> None:
        if _ID.fullmatch(name) is None:
            what = f"{name!r} is no id: a letter, then letters, digits and underscores"
            self._problem("id", what, f"{pointer}/id")

    def _check_ids(self, ids: Sequence[str]) -> None:
        lowered = [name.lower() for name in ids]
        for index, name in enumerate(lowered):
            if name and name in lowered[:index]:
                what = f"{ids[index]!r} is an id already"
                self._problem("id", what, f"/steps/{index - 1}/id")

    def _check_names(self, outlets: Sequence[Outlet | None]) -> None:
        names = [None if one is None else one.name for one in outlets]
        for index, outlet in enumerate(outlets):
            if outlet is not None and outlet.name in names[:index]:
                what = f"two sinks are named {outlet.name!r}"
                hint = "give one of them another name: who writes is known by it"
                self._problem("name", what, None, hint, outlet.origin)

    def _at(self, pointer: str) -> str:
        return self._document.origin(pointer)

    def _problem(
        self,
        key: str,
        what: str,
        pointer: str | None,
        hint: str | None = None,
        origin: str | None = None,
    ) -> None:
        where = origin or self._at(pointer or "")
        self._document.problem(key, what, where, hint)


def _hook(options: Mapping[str, Any]) -> Hook:
    return Hook(
        options.get("hook.command"),
        options.get("hook.entry.point"),
        options["hook.on.failure"],
        options["hook.timeout.millis"] / 1000,
    )


def _watermark(options: Mapping[str, Any]) -> Watermark | None:
    column = options.get("watermark.column")
    if column is None:
        return None
    return Watermark(str(column), str(options["watermark.delay"]))
