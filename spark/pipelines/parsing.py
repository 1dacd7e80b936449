"""The tables of a pipeline's file: their values, options and problems."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from streamfactory.spi import ConfigError, Problem
from streamfactory.wiring.config.classification import (
    group_properties,
    refused_functions,
)
from streamfactory.wiring.config.documents import clip_key
from streamfactory.wiring.config.files import flat, origin_of
from streamfactory.wiring.config.resolution import resolve_options
from streamfactory.wiring.core.nearest import nearest
from streamfactory.wiring.options.shared import by_spelling

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamfactory.spi import Option
    from streamfactory.wiring.config.catalogue import Catalogue
    from streamfactory.wiring.config.definition import Property, StreamDefinition
    from streamfactory.wiring.config.documents import Document

TABLES: Final = (
    "source",
    "sources",
    "lookups",
    "steps",
    "expectations",
    "sinks",
    "tables",
    "dead-letters",
    "spark",
)
"""Names of the tables that a file may have."""
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
ID: Final = re.compile("[A-Za-z_][A-Za-z0-9_]{0,99}")
TABLE_OPTION: Final = "option."
"""Prefix of options of a table's connector."""


class Tables:
    """The tables of one file. Problems are collected in its document.

    Args:
        document: The file.
        body: What it contains.
        catalogue: Where named streams are looked up.
        allow_class_paths: Whether options may name Python functions.
    """

    def __init__(
        self,
        document: Document,
        body: Mapping[str, Any],
        catalogue: Catalogue,
        *,
        allow_class_paths: bool,
    ) -> None:
        self._allow_class_paths = allow_class_paths
        self._document = document
        self._body = body
        self._catalogue = catalogue
        self._streams: dict[StreamDefinition, None] = {}

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
        near_by = [*by_spelling(options), *(() if pointer else TABLES)]
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
        self._document.problems += refused_functions(
            group, allow_class_paths=self._allow_class_paths
        )
        settings, problems = resolve_options(group, "pipeline")
        self._document.problems += [
            replace(problem, origin=problem.origin or self._at(pointer))
            for problem in problems
        ]
        return {key: setting.value for key, setting in settings.items()}

    # --- streams and connectors ---

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

    def _with_connector(
        self, table: Mapping[str, Any], pointer: str, options: Sequence[Option]
    ) -> tuple[dict[str, str], Mapping[str, Any]]:
        """Options of Spark's connector, and those of the pipeline."""
        given = self._flat(table, pointer)
        more = [p for p in given if p.key.lower().startswith(TABLE_OPTION)]
        own = [prop for prop in given if prop not in more]
        found = {p.key[len(TABLE_OPTION) :]: p.text for p in more}
        return found, self._settled(own, pointer, options)

    # --- checks ---

    def _check_name(self, name: str, pointer: str) -> None:
        if NAME.fullmatch(name) is None:
            what = f"{name!r} is no name: letters, digits, dots, dashes"
            self._problem("name", what, f"{pointer}/name")

    def _check_id(self, name: str, pointer: str) -> None:
        if ID.fullmatch(name) is None:
            what = f"{name!r} is no id: a letter, then letters, digits and underscores"
            self._problem("id", what, f"{pointer}/id")

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
