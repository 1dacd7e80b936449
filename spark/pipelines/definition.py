"""Parsing of pipeline files. Needs no Spark and connects to no stream."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from streamfactory.spark.pipelines.model import (
    Draft,
    Entry,
    Hook,
    Pipeline,
    Sink,
    Source,
    Step,
    Table,
    Watermark,
)
from streamfactory.spark.pipelines.options import (
    DEAD_LETTER_OPTIONS,
    PIPELINE_OPTIONS,
    SINK_OPTIONS,
    SOURCE_OPTIONS,
    STEP_OPTIONS,
    TABLE_OPTIONS,
)
from streamfactory.spark.pipelines.table_guarantees import EPOCH_OPTIONS
from streamfactory.spi import ConfigError, Problem
from streamfactory.wiring.config.catalogue import Catalogue
from streamfactory.wiring.config.classification import group_properties
from streamfactory.wiring.config.documents import clip_key, open_document, read_toml
from streamfactory.wiring.config.files import flat, origin_of
from streamfactory.wiring.config.resolution import resolve_options
from streamfactory.wiring.core.nearest import nearest
from streamfactory.wiring.options.shared import by_spelling

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from streamfactory.spi import Option
    from streamfactory.wiring.config.definition import Property, StreamDefinition
    from streamfactory.wiring.config.documents import Document

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_ID: Final = re.compile("[A-Za-z_][A-Za-z0-9_]{0,99}")
_TABLES: Final = (
    "source",
    "sources",
    "steps",
    "sinks",
    "tables",
    "dead-letters",
    "spark",
)
_INPUT: Final = "input"
"""Id of [source], where it has none."""
_TABLE_OPTION: Final = "option."
"""Prefix of options of a table's connector."""
_NOT_HERE: Final = {"spark.master": "set --master", "spark.app.name": "remove it"}
"""Spark settings that a pipeline cannot set."""


def read_pipeline(path: Path, catalogue: Catalogue | None = None) -> Draft:
    """Read a pipeline's file. Named streams are looked up, but not connected to.

    Args:
        path: A TOML file.
        catalogue: Where they are looked up; by default that of the process.

    Raises:
        ConfigError: config; the file cannot be read.
    """
    if path.suffix.lower() != ".toml":
        msg = f"{str(path)!r} is no pipeline: that is a TOML file"
        raise ConfigError(msg)
    document = open_document(path)
    return _Reader(
        document, read_toml(document), catalogue or Catalogue().snapshot()
    ).draft()


class _Reader:
    """Parser of one file."""

    def __init__(
        self, document: Document, body: Mapping[str, Any], catalogue: Catalogue
    ) -> None:
        self._document = document
        self._body = body
        self._catalogue = catalogue
        self._streams: dict[StreamDefinition, None] = {}

    def draft(self) -> Draft:
        """The parsed file, with all its problems."""
        top = {key: value for key, value in self._body.items() if key not in _TABLES}
        options = self._settle(top, "", PIPELINE_OPTIONS)
        name = self._name(options)
        entries = self._entries()
        sources = tuple(one for one in entries if isinstance(one, Source))
        steps = tuple(
            self._step(table, f"/steps/{index}")
            for index, table in enumerate(self._tables("steps"))
        )
        ids = [*(one.id for one in entries), *(step.id for step in steps)]
        self._check_ids(ids, len(entries))
        sinks, lake = self._sinks(ids), self._lake(ids)
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
            )
        return Draft(
            name=name,
            origin=origin,
            entries=entries,
            steps=steps,
            targets=(*sinks, *lake),
            streams=tuple(self._streams),
            hook=hook,
            pipeline=pipeline,
            problems=problems,
        )

    # --- parts ------------------------------------------------------------------

    def _name(self, options: Mapping[str, Any]) -> str:
        name = str(options.get("name", self._document.path.stem))
        if _NAME.fullmatch(name) is None:
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
            if _ID.fullmatch(name) is None:
                what = f"the stream's name {name!r} is no id"
                self._problem("id", what, pointer, 'write id = "..."')
        self._check_watermark(own, pointer)
        entry = (name, _watermark(own), self._at(pointer))
        return Entry(*entry) if stream is None else Source(*entry, stream)

    def _step(self, table: Mapping[str, Any], pointer: str) -> Step:
        options = self._settle(table, pointer, STEP_OPTIONS)
        name = str(options.get("id", ""))
        if name:
            self._check_id(name, pointer)
        self._check_watermark(options, pointer)
        sql = self._sql(options, pointer)
        return Step(name, sql, _watermark(options), self._at(pointer))

    def _sql(self, options: Mapping[str, Any], pointer: str) -> str:
        sql, file = options.get("sql"), options.get("sql.file")
        if (sql is None) == (file is None):
            self._problem("sql", "wants one of sql and sql.file", pointer)
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
            given = self._flat(table, pointer)
            more = [p for p in given if p.key.lower().startswith(_TABLE_OPTION)]
            own = [prop for prop in given if prop not in more]
            settled = self._settled(own, pointer, TABLE_OPTIONS)
            kind, name = str(settled.get("format", "")), str(settled.get("name", ""))
            # Spark compares short names without case; names of classes have dots.
            kind = kind if "." in kind else kind.lower()
            self._check_name(name or "t", pointer)
            options = {p.key[len(_TABLE_OPTION) :]: p.text for p in more}
            ours = {key.lower() for key in EPOCH_OPTIONS.get(kind, ())} | {"path"}
            for key in options:
                if key.lower() in ours:
                    what = "is set by the pipeline, which numbers its batches"
                    self._problem(_TABLE_OPTION + key, what, pointer, "remove it")
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

    def _stream(
        self, table: Mapping[str, Any], pointer: str, options: Sequence[Option]
    ) -> tuple[StreamDefinition | None, Mapping[str, Any]]:
        """A named stream with the table's overrides, and options of the pipeline."""
        known = by_spelling(options)
        given = len(self._document.problems)
        properties = self._flat(table, pointer)
        own = [prop for prop in properties if prop.key.lower() in known]
        others = [prop for prop in properties if prop.key.lower() not in known]
        if len(self._document.problems) > given and "stream" in table:
            # A name that is not text was reported already.
            options = [option for option in options if option.key != "stream"]
            own = [prop for prop in own if prop.key.lower() != "stream"]
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
        stream = found[0].with_properties(others)
        self._streams[stream] = None
        return stream, settled

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

    # --- tables -----------------------------------------------------------------

    def _table(self, key: str, *, required: bool = True) -> Mapping[str, Any] | None:
        table = self._body.get(key)
        if isinstance(table, dict):
            return table
        if required or table is not None:
            wrong = "is missing" if table is None else "is not a table"
            self._problem(key, wrong, f"/{key}", f"write [{key}]")
        return None

    def _tables(self, key: str) -> list[Mapping[str, Any]]:
        tables = self._body.get(key, [])
        if isinstance(tables, list) and all(isinstance(t, dict) for t in tables):
            return tables
        hint = f"write [[{key}]] before each"
        self._problem(key, "is not an array of tables", f"/{key}", hint)
        return []

    def _flat(
        self, table: Mapping[str, Any], pointer: str, prefix: str = ""
    ) -> list[Property]:
        """The values of a table; those that have no text are problems."""
        found = list(flat(self._document, table, pointer, prefix))
        problems = [one for one in found if isinstance(one, Problem)]
        self._document.problems += problems
        return [one for one in found if not isinstance(one, Problem)]

    # --- options ----------------------------------------------------------------

    def _settle(
        self, table: Mapping[str, Any], pointer: str, options: Sequence[Option]
    ) -> Mapping[str, Any]:
        properties = self._flat(table, pointer)
        return self._settled(properties, pointer, options)

    def _settled(
        self, properties: Sequence[Property], pointer: str, options: Sequence[Option]
    ) -> Mapping[str, Any]:
        near_by = [*by_spelling(options), *(() if pointer else _TABLES)]
        group, others = group_properties(options, ((p.key, p) for p in properties))
        for prop in others:
            word = prop.key.lower()
            near = nearest(word, near_by)
            near = near or nearest(word.split(".")[0], near_by)
            hint = f"did you mean {near}?" if near else None
            what = "is no option of " + (
                f"[{pointer.split('/')[1]}]" if pointer else "a pipeline"
            )
            self._problem(prop.key, what, None, hint, prop.origin)
        settings, problems = resolve_options(group, "pipeline")
        self._document.problems += [
            replace(problem, origin=problem.origin or self._at(pointer))
            for problem in problems
        ]
        return {key: setting.value for key, setting in settings.items()}

    # --- checks -----------------------------------------------------------------

    def _check_name(self, name: str, pointer: str) -> None:
        if _NAME.fullmatch(name) is None:
            what = f"{name!r} is no name: letters, digits, dots, dashes"
            self._problem("name", what, f"{pointer}/name")

    def _check_from(
        self, target: Sink | Table, ids: Sequence[str], pointer: str
    ) -> None:
        if target.rows not in ids:
            near = nearest(target.rows, ids)
            hint = f"did you mean {near!r}?" if near else None
            known = ", ".join(filter(None, ids))
            what = f"{target.rows!r} is no id; there are {known}"
            self._problem("from", what, f"{pointer}/from", hint)

    def _check_id(self, name: str, pointer: str) -> None:
        if _ID.fullmatch(name) is None:
            what = f"{name!r} is no id: a letter, then letters, digits and underscores"
            self._problem("id", what, f"{pointer}/id")

    def _check_ids(self, ids: Sequence[str], entries: int) -> None:
        """Refuse repeated ids; those of sources stand before those of steps."""
        lowered = [name.lower() for name in ids]
        for index, name in enumerate(lowered):
            if name and name in lowered[:index]:
                what = f"{ids[index]!r} is an id already"
                if index < entries:
                    hint = "give one of the sources another id"
                    self._problem("id", what, f"/sources/{index}", hint)
                else:
                    self._problem("id", what, f"/steps/{index - entries}/id")

    def _check_names(self, named: Sequence[Sink | Table | None]) -> None:
        names = [None if one is None else one.name for one in named]
        for index, sink in enumerate(named):
            if sink is not None and sink.name in names[:index]:
                what = f"two sinks are named {sink.name!r}"
                hint = "give one of them another name: it is part of the writer id"
                self._problem("name", what, None, hint, sink.origin)

    def _check_watermark(self, options: Mapping[str, Any], pointer: str) -> None:
        key = "watermark.delay"
        if key in options and "watermark.column" not in options:
            self._problem(key, "wants watermark.column too", f"{pointer}/{key}")

    def _at(self, pointer: str) -> str:
        return origin_of(self._document, pointer)

    def _problem(
        self,
        key: str,
        what: str,
        pointer: str | None,
        hint: str | None = None,
        origin: str | None = None,
    ) -> None:
        where = origin or self._at(pointer or "")
        self._document.problems.append(Problem(clip_key(key), what, where, hint))


def _watermark(options: Mapping[str, Any]) -> Watermark | None:
    column = options.get("watermark.column")
    if column is None:
        return None
    return Watermark(str(column), str(options.get("watermark.delay", "0 seconds")))
