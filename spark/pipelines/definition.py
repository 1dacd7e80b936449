"""Parsing of pipeline files. Needs no Spark and connects to no stream."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from streamfactory.spark.pipelines.expectations import (
    DEAD_LETTER,
    checked,
    failed_id,
    reserved_end,
)
from streamfactory.spark.pipelines.model import (
    Distinct,
    Draft,
    Entry,
    Expectation,
    Hook,
    Lookup,
    Pipeline,
    Sink,
    Source,
    Step,
    Table,
    Watermark,
)
from streamfactory.spark.pipelines.options import (
    DEAD_LETTER_OPTIONS,
    EXPECTATION_OPTIONS,
    LOOKUP_OPTIONS,
    LOOKUP_STREAM_OPTIONS,
    LOOKUP_TABLE_OPTIONS,
    PIPELINE_OPTIONS,
    SINK_OPTIONS,
    SOURCE_OPTIONS,
    SPARK,
    STEP_OPTIONS,
    TABLE_OPTIONS,
    Refresh,
)
from streamfactory.spark.pipelines.parsing import ID, NAME, TABLE_OPTION, TABLES, Tables
from streamfactory.spark.pipelines.table_guarantees import EPOCH_OPTIONS
from streamfactory.spi import ConfigError
from streamfactory.wiring.config.catalogue import Catalogue
from streamfactory.wiring.config.documents import Document, open_document, read_toml
from streamfactory.wiring.core.nearest import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from streamfactory.spi import Option
    from streamfactory.wiring.config.definition import StreamDefinition

_INPUT: Final = "input"
"""Id of [source], where it has none."""
_NOT_HERE: Final = {"spark.master": "set --master", "spark.app.name": "remove it"}
"""Spark settings that a pipeline cannot set."""


def read_pipeline(
    path: Path,
    catalogue: Catalogue | None = None,
    *,
    allow_class_paths: bool = False,
    text: str | None = None,
) -> Draft:
    """Read a pipeline's file. Named streams are looked up, but not connected to.

    Args:
        path: A TOML file.
        catalogue: Where they are looked up; by default that of the process.
        allow_class_paths: Whether steps may name Python functions.
        text: In place of what is in the file, which need not exist.

    Raises:
        ConfigError: config; the file cannot be read.
    """
    if path.suffix.lower() != ".toml":
        msg = f"{str(path)!r} is no pipeline: that is a TOML file"
        raise ConfigError(msg)
    document = open_document(path) if text is None else Document(path, text)
    return parse_pipeline(document, catalogue, allow_class_paths=allow_class_paths)


def parse_pipeline(
    document: Document,
    catalogue: Catalogue | None = None,
    *,
    allow_class_paths: bool = False,
) -> Draft:
    """As `read_pipeline`, of a text that may not be in its file yet.

    Raises:
        ConfigError: config; it is not TOML.
    """
    return _Reader(
        document,
        read_toml(document),
        catalogue or Catalogue().snapshot(),
        allow_class_paths=allow_class_paths,
    ).draft()


class _Reader(Tables):
    """Parser of one file."""

    def draft(self) -> Draft:
        """The parsed file, with all its problems."""
        top = {key: value for key, value in self._body.items() if key not in TABLES}
        options = self._settle(top, "", PIPELINE_OPTIONS)
        name = self._name(options)
        entries = self._entries()
        sources = tuple(one for one in entries if isinstance(one, Source))
        steps = tuple[Step, ...]()
        for index, table in enumerate(self._tables("steps")):
            before = [*(one.id for one in entries), *(one.id for one in steps)][-1]
            steps += (self._step(table, f"/steps/{index}", before),)
        lookups = tuple(
            self._lookup(table, f"/lookups/{index}")
            for index, table in enumerate(self._tables("lookups"))
        )
        ids = [*(one.id for one in entries), *(step.id for step in steps)]
        self._check_ids(entries, lookups, steps)
        sinks, lake = self._sinks(ids), self._lake(ids)
        expectations, rejects = self._expectations([step.id for step in steps])
        steps = tuple(part for step in steps for part in checked(step, expectations))
        sinks = (*sinks, *rejects)
        dead = self._dead_letters(ids[0])
        self._check_names([*sinks, *lake, dead])
        hook, spark = self._hook(options), self._spark()
        problems = tuple(self._document.problems)
        origin = str(self._document.path)
        pipeline = None
        if not problems:
            pipeline = Pipeline(
                name=name,
                description=options["description"],
                origin=origin,
                sources=sources,
                steps=steps,
                sinks=sinks,
                dead_letters=dead,
                trigger=options["trigger"],
                mode=options["output.mode"],
                checkpoint=options["checkpoint"],
                idle_rounds=options.get("idle.stop.rounds"),
                hook=hook,
                spark=spark,
                tables=lake,
                lookups=lookups,
                engine=options["engine"],
            )
        return Draft(
            name=name,
            origin=origin,
            entries=entries,
            lookups=lookups,
            steps=steps,
            targets=(*sinks, *lake),
            streams=tuple(self._streams),
            hook=hook,
            pipeline=pipeline,
            problems=problems,
            places={key.lower(): self._at(f"/{key}") for key in self._body},
            engine=options.get("engine", SPARK),
        )

    # --- parts ------------------------------------------------------------------

    def _name(self, options: Mapping[str, Any]) -> str:
        name = str(options.get("name", self._document.path.stem))
        if NAME.fullmatch(name) is None:
            what = f"{name!r} is no name: letters, digits, dots, dashes"
            hint = None if "name" in options else 'write name = "..."'
            self._problem("name", what, "/name", hint)
        return name

    def _entries(self) -> tuple[Entry, ...]:
        """The sources; at least one, so that ids can be checked."""
        if "sources" not in self._body:
            table = self._table("source")
            pairs = [] if table is None else [("/source", table)]
        else:
            if "source" in self._body:
                what, hint = "and [[sources]] exclude each other", "remove one of them"
                self._problem("source", what, "/source", hint)
            tables = self._tables("sources")
            pairs = [(f"/sources/{n}", table) for n, table in enumerate(tables)]
            if not tables and not self._body["sources"]:
                self._problem("sources", "is empty", "/sources", "add [[sources]]")
        found = tuple(self._entry(table, pointer) for pointer, table in pairs)
        return found or (Entry(_INPUT, None, self._at("")),)

    def _entry(self, table: Mapping[str, Any], pointer: str) -> Entry:
        stream, own = self._stream(table, pointer, SOURCE_OPTIONS)
        name = str(own.get("id", _INPUT))
        if "id" in own:
            self._check_id(name, pointer)
        elif pointer != "/source" and stream is not None:
            name = stream.name
            if ID.fullmatch(name) is None:
                what = f"the stream's name {name!r} is no id"
                self._problem("id", what, pointer, 'write id = "..."')
        self._check_watermark(own, pointer)
        entry = (name, _watermark(own), self._at(pointer))
        return Entry(*entry) if stream is None else Source(*entry, stream)

    def _lookup(self, table: Mapping[str, Any], pointer: str) -> Lookup:
        stream, options = None, dict[str, str]()
        if any(key.lower() == "stream" for key in table):
            options_of_it = (*LOOKUP_OPTIONS, *LOOKUP_STREAM_OPTIONS)
            stream, own = self._stream(table, pointer, options_of_it)
        else:
            options, own = self._with_connector(
                table, pointer, (*LOOKUP_OPTIONS, *LOOKUP_TABLE_OPTIONS)
            )
        name = str(own.get("id", ""))
        if name:
            self._check_id(name, pointer)
        return Lookup(
            id=name,
            stream=stream,
            key=tuple(own.get("key", ())),
            format=connector(str(own.get("format", ""))),
            path=own.get("path"),
            schema=own.get("schema"),
            options=options,
            refresh=own.get("refresh", Refresh()),
            origin=self._at(pointer),
        )

    def _step(self, table: Mapping[str, Any], pointer: str, before: str) -> Step:
        options = self._settle(table, pointer, STEP_OPTIONS)
        name = str(options.get("id", ""))
        if name:
            self._check_id(name, pointer)
        self._check_watermark(options, pointer)
        python, sql = options.get("python"), ""
        if python is None:
            sql = self._sql(options, pointer)
        else:
            self._check_python(str(python), options, pointer)
        inputs = tuple(options.get("from", (before,)))
        if python is None and "from" in options:
            what = "has no effect: a query names the ids that it reads"
            self._problem("from", what, f"{pointer}/from", "remove it")
        at, watermark, distinct = self._at(pointer), _watermark(options), None
        within = options.get("distinct.within")
        if "distinct.by" in options:
            distinct = Distinct(tuple(options["distinct.by"]), within is not None)
        if within is not None:
            self._check_within(options, pointer)
            watermark = Watermark(options.get("watermark.column", ""), str(within))
        return Step(name, sql, watermark, at, distinct, python=python, inputs=inputs)

    def _expectations(
        self, steps: Sequence[str]
    ) -> tuple[list[Expectation], list[Sink]]:
        """Expectations, and the sinks of rows that do not fulfil them."""
        found, sinks = list[Expectation](), list[Sink]()
        for index, table in enumerate(self._tables("expectations")):
            pointer = f"/expectations/{index}"
            stream: StreamDefinition | None = None
            named = any(key.lower() == "stream" for key in table)
            if named:
                stream, own = self._stream(table, pointer, EXPECTATION_OPTIONS)
            else:
                own = self._settle(table, pointer, EXPECTATION_OPTIONS)
            name, on = str(own.get("name", "")), str(own.get("on", ("", *steps)[-1]))
            self._check_name(name or "x", pointer)
            if name in [one.name for one in found]:
                self._problem("name", f"{name!r} is a name already", f"{pointer}/name")
            if on not in steps:
                what = f"{on!r} is no step; there are {', '.join(steps) or 'none'}"
                hint = 'add a step, such as sql = "select * from input"'
                self._problem("on", what, pointer, hint)
            way = str(own.get("on.failure", "warn"))
            if way == DEAD_LETTER and not named:
                what = f"on.failure = {DEAD_LETTER!r} requires stream"
                self._problem("stream", what, pointer, "name the stream of such rows")
            elif way != DEAD_LETTER and named:
                what = f"has no effect with on.failure = {way!r}"
                self._problem("stream", what, pointer, f"set {DEAD_LETTER}")
            condition = str(own.get("condition", "")).strip()
            one = Expectation(name, on, condition, way, self._at(pointer))
            found.append(one)
            if stream is not None:
                sinks.append(Sink(name, failed_id(one), stream, self._at(pointer)))
        return found, sinks

    def _check_python(
        self, text: str, options: Mapping[str, Any], pointer: str
    ) -> None:
        if "sql" in options or "sql.file" in options:
            self._problem("python", "and SQL exclude each other", f"{pointer}/python")
        if re.fullmatch(r"[\w.]+:\w+", text) is None:
            what = f"{text!r} is not module:function"
            self._problem("python", what, f"{pointer}/python")

    def _check_within(self, options: Mapping[str, Any], pointer: str) -> None:
        key = "distinct.within"
        for wanted in ("distinct.by", "watermark.column"):
            if wanted not in options:
                self._problem(key, f"wants {wanted} too", f"{pointer}/{key}")
        if "watermark.delay" in options:
            what = "is the delay of the step's watermark"
            self._problem(key, what, f"{pointer}/{key}", "remove watermark.delay")

    def _sql(self, options: Mapping[str, Any], pointer: str) -> str:
        sql, file = options.get("sql"), options.get("sql.file")
        if (sql is None) == (file is None):
            what = "wants one of sql, sql.file and python"
            self._problem("sql", what, pointer)
            return ""
        key = "sql" if file is None else "sql.file"
        if file is not None:
            # Relative to the pipeline file, not to the working directory.
            path = self._document.path.parent / str(file)
            try:
                sql = open_document(path).text
            except ConfigError as error:
                self._problem(key, error.what, f"{pointer}/{key}")
                return ""
        text = str(sql).strip().rstrip(";").rstrip()
        if not text:
            self._problem(key, "is empty", f"{pointer}/{key}", "write select ...")
        return text

    def _sinks(self, ids: Sequence[str]) -> tuple[Sink, ...]:
        tables = self._tables("sinks")
        if not tables and not self._body.get("sinks") and "tables" not in self._body:
            self._problem("sinks", "a pipeline needs a sink", "", "add [[sinks]]")
        found = []
        for index, table in enumerate(tables):
            pointer = f"/sinks/{index}"
            sink = self._sink(table, pointer, SINK_OPTIONS, ids[-1])
            if sink is None:
                continue
            self._check_from(sink, ids, pointer)
            found.append(sink)
        return tuple(found)

    def _lake(self, ids: Sequence[str]) -> tuple[Table, ...]:
        found = []
        for index, table in enumerate(self._tables("tables")):
            pointer = f"/tables/{index}"
            options, settled = self._with_connector(table, pointer, TABLE_OPTIONS)
            name, kind = str(settled.get("name", "")), str(settled.get("format", ""))
            kind = connector(kind)
            self._check_name(name or "t", pointer)
            ours = {key.lower() for key in EPOCH_OPTIONS.get(kind, ())} | {"path"}
            for key in options:
                if key.lower() in ours:
                    what = "is set by the pipeline, which numbers its batches"
                    self._problem(TABLE_OPTION + key, what, pointer, "remove it")
            rows, path = str(settled.get("from", ids[-1])), str(settled.get("path", ""))
            one = Table(name, rows, kind, path, options, self._at(pointer))
            self._check_from(one, ids, pointer)
            found.append(one)
        return tuple(found)

    def _dead_letters(self, source_id: str) -> Sink | None:
        table = self._table("dead-letters", required=False)
        if table is None:
            return None
        return self._sink(table, "/dead-letters", DEAD_LETTER_OPTIONS, source_id)

    def _sink(
        self,
        table: Mapping[str, Any],
        pointer: str,
        options: Sequence[Option],
        last: str,
    ) -> Sink | None:
        stream, own = self._stream(table, pointer, options)
        if stream is None:
            return None
        name = str(own.get("name", stream.name))
        self._check_name(name, pointer)
        return Sink(name, str(own.get("from", last)), stream, self._at(pointer))

    def _hook(self, options: Mapping[str, Any]) -> Hook:
        key = "hook.command" if "hook.command" in options else "hook.entry.point"
        return Hook(
            options.get("hook.command"),
            options.get("hook.entry.point"),
            options.get("hook.on.failure", "warn"),
            options.get("hook.timeout.millis", 0) / 1000,
            self._at(f"/{key}"),
        )

    def _spark(self) -> dict[str, str]:
        table = self._table("spark", required=False) or {}
        found = {}
        for prop in self._flat(table, "/spark", "spark."):
            key = prop.key.replace("spark.spark.", "spark.", 1)
            if key in _NOT_HERE:
                what, hint = "cannot be set by a pipeline", _NOT_HERE[key]
                self._problem(key, what, None, hint, prop.origin)
            found[key] = prop.text
        return found

    # --- checks -----------------------------------------------------------------

    def _check_from(
        self, target: Sink | Table, ids: Sequence[str], pointer: str
    ) -> None:
        if target.rows not in ids:
            near = nearest(target.rows, ids)
            hint = f"did you mean {near!r}?" if near else None
            known = ", ".join(filter(None, ids))
            what = f"{target.rows!r} is no id; there are {known}"
            self._problem("from", what, f"{pointer}/from", hint)

    def _check_ids(
        self,
        entries: Sequence[Entry],
        lookups: Sequence[Lookup],
        steps: Sequence[Step],
    ) -> None:
        """Refuse repeated ids, and those that parts of steps may have."""
        hint = "give one of the sources another id"
        named = [
            *((one.id, f"/sources/{n}", hint) for n, one in enumerate(entries)),
            *((one.id, f"/lookups/{n}/id", None) for n, one in enumerate(lookups)),
            *((one.id, f"/steps/{n}/id", None) for n, one in enumerate(steps)),
        ]
        before = set[str]()
        for name, pointer, remedy in named:
            if name and name.lower() in before:
                self._problem("id", f"{name!r} is an id already", pointer, remedy)
            before.add(name.lower())
            end = reserved_end(name)
            if end is not None:
                what = f"{name!r} ends in {end!r}, as ids of steps with expectations do"
                self._problem("id", what, pointer, 'write id = "..." with another end')

    def _check_names(self, named: Sequence[Sink | Table | None]) -> None:
        names = [None if one is None else one.name for one in named]
        for index, sink in enumerate(named):
            if sink is not None and sink.name in names[:index]:
                what = f"two sinks are named {sink.name!r}"
                hint = "give one of them another name: it is part of the writer id"
                self._problem("name", what, None, hint, sink.origin)


def connector(name: str) -> str:
    """The name of a connector: Spark compares short names without case.

    Names of classes have dots.
    """
    return name if "." in name else name.lower()


def _watermark(options: Mapping[str, Any]) -> Watermark | None:
    column = options.get("watermark.column")
    if column is None:
        return None
    return Watermark(str(column), str(options.get("watermark.delay", "0 seconds")))
