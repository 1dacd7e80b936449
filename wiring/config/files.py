"""Reads one file into stream definitions: ours, Java properties, Pinot's, Hop's.

Only the form of the file is validated. Each property has the line where it was found,
and all problems of a file are reported at once.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from streamfactory.spi import ConfigError
from streamfactory.wiring.config.definition import Property, StreamDefinition
from streamfactory.wiring.config.documents import (
    Document,
    flat,
    open_document,
    pointer_of,
    read_toml,
    refusal,
    syntax,
    unparsable,
)
from streamfactory.wiring.core.nearest import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

SUFFIXES: Final = (".toml", ".json", ".properties")

_MEMBERS: Final = ("name", "description", "properties")
_PINOT_MEMBERS: Final = re.compile(
    "tableName|tableIndexConfig|ingestionConfig|streamConfigs|streamConfigMaps|"
    r"streamType|stream\..*|REALTIME|OFFLINE|realtime|offline"
)


def read_definitions(path: Path) -> list[StreamDefinition]:
    """Read the definitions of one file, in the order of the file.

    Args:
        path: Ends in one of `SUFFIXES`. The kind of a JSON file is detected by its
            content.

    Raises:
        ConfigError: config; the file cannot be read, or is malformed; with all
            problems.
    """
    readers: Mapping[str, Callable[[Document], list[StreamDefinition]]] = {
        ".toml": _read_toml,
        ".json": _read_json,
        ".properties": _read_properties,
    }
    reader = readers.get(path.suffix.lower())
    if reader is None:
        msg = f"{str(path)!r} has an unknown suffix: known are {', '.join(SUFFIXES)}"
        raise ConfigError(msg)
    document = open_document(path)
    definitions = reader(document)
    first: dict[str, StreamDefinition] = {}
    for definition in definitions:
        known = first.setdefault(definition.name, definition)
        _check_name(document, definition, again=known is not definition)
        _check_properties(document, definition)
    if document.problems:
        raise refusal(str(path), document.problems)
    return definitions


# --- the file -------------------------------------------------------------------


def _check_name(
    document: Document, definition: StreamDefinition, *, again: bool
) -> None:
    name, origin = definition.name, document.origin("/name")
    if not name.strip() or name != name.strip():
        document.problem(
            "name", f"{name!r} is empty, or has leading or trailing blanks", origin
        )
    # Names are never used as paths, and must not look like paths.
    elif name in (".", "..") or not name.isprintable() or re.search(r"[/\\]", name):
        what = (
            f"{name!r} is not a valid name: it has a slash, backslash or "
            f"control character"
        )
        document.problem("name", what, origin)
    if again:
        document.problem("name", f"{name!r} names two streams of this file", origin)


def _check_properties(document: Document, definition: StreamDefinition) -> None:
    seen: dict[str, Property] = {}
    for prop in definition.properties:
        first = seen.setdefault(prop.key.lower(), prop)
        if first is not prop:
            same = first.key == prop.key
            other = "" if same else f" in another case, as {first.key}"
            what = f"is defined twice{other}; first at {first.origin}"
            document.problem(prop.key, what, prop.origin)
        try:
            f"{prop.key}{prop.text}".encode()
        except UnicodeEncodeError:
            what = "contains a lone surrogate (half of a character)"
            document.problem(ascii(prop.key), what, prop.origin)


# --- ours -----------------------------------------------------------------------


def _own(document: Document, body: Mapping[str, Any]) -> list[StreamDefinition]:
    for key in body:
        if key not in _MEMBERS:
            near = nearest(key, _MEMBERS)
            hint = f"did you mean {near}?" if near else "options go under properties"
            origin = document.origin(pointer_of(key))
            document.problem(key, "is not a key of a stream definition", origin, hint)
    words = {"name": document.path.stem, "description": ""}
    for key in [key for key in words if key in body]:
        if isinstance(body[key], str):
            words[key] = body[key]
        else:
            document.problem(key, "is not a string", document.origin(f"/{key}"))
    table = body.get("properties")
    if not isinstance(table, dict):
        what = "is missing" if table is None else "is not a table of keys and values"
        document.problem("properties", what, document.origin("/properties"))
        table = {}
    properties = tuple(flat(document, table, "/properties"))
    name, origin = words["name"], str(document.path)
    return [StreamDefinition(name, properties, words["description"], origin)]


# --- TOML -----------------------------------------------------------------------


def _read_toml(document: Document) -> list[StreamDefinition]:
    return _own(document, read_toml(document))


# --- JSON -----------------------------------------------------------------------

_JSON_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],]')


def _read_json(document: Document) -> list[StreamDefinition]:
    try:
        body = json.loads(document.text)
    except json.JSONDecodeError as error:
        place = error.lineno, error.colno
        raise syntax(document, "JSON", error.msg, place) from error
    except (ValueError, RecursionError) as error:
        raise syntax(document, "JSON", unparsable(error), (1, 1)) from error
    if not isinstance(body, dict):
        raise syntax(document, "a JSON object", "expected { at the beginning", (1, 1))
    _find_json_lines(document)
    reader = _json_reader(body)
    if reader is None:
        return _own(document, body)
    try:
        return reader(body, document.origin, document.path.stem)
    except ConfigError as error:
        if not error.problems:
            raise
        document.problems += error.problems
        return []


def _json_reader(
    body: Mapping[str, Any],
) -> Callable[..., list[StreamDefinition]] | None:
    # Imported here: most files have our own format and do not need these.
    if "dataStream" in body:
        from streamfactory.wiring.config.imports.hop import read_hop

        return read_hop
    if "properties" not in body and any(map(_PINOT_MEMBERS.fullmatch, body)):
        from streamfactory.wiring.config.imports.pinot import read_pinot

        return read_pinot
    return None


def _find_json_lines(document: Document) -> None:
    """Note the line of each key and of each object in an array, and repeated keys."""
    line, end, values = 1, 0, 0
    inside: list[str | int | None] = []  # key or index of each open value
    for match in _JSON_TOKEN.finditer(document.text):
        line += document.text.count("\n", end, match.start())
        mark, end = match[0], match.start()
        values += mark in ",{["
        document.check_size(depth=len(inside), values=values, line=line)
        if mark in "{[":
            if inside and isinstance(inside[-1], int):
                document.lines[pointer_of(*map(str, inside))] = line
            inside.append(None if mark == "{" else 0)
        elif mark in "}]":
            inside.pop()
        elif mark == ",":
            last = inside[-1]
            inside[-1] = last + 1 if isinstance(last, int) else None
        elif inside and inside[-1] is None:
            inside[-1] = key = str(json.loads(mark))
            pointer = pointer_of(*map(str, inside))
            document.check_size(pointer=len(pointer), line=line)
            if pointer in document.lines:
                what = f"is defined twice; first at {document.origin(pointer)}"
                document.problem(key, what, f"{document.path}:{line}")
            document.lines[pointer] = line


# --- Java properties ------------------------------------------------------------


def _read_properties(document: Document) -> list[StreamDefinition]:
    import javaproperties

    properties, line = list[Property](), 1
    try:
        for element in javaproperties.parse(document.text):
            if isinstance(element, javaproperties.KeyValue):
                document.check_size(values=len(properties), line=line)
                origin = f"{document.path}:{line}"
                properties.append(Property(element.key, element.value, origin))
            line += len(re.findall(r"\r\n|\r|\n", element.source))
    except javaproperties.InvalidUEscapeError as error:
        what = f"{error.escape} is not an escape: \\u takes four hexadecimal digits"
        raise syntax(document, "a properties file", what, (line, 1)) from error
    origin = str(document.path)
    return [StreamDefinition(document.path.stem, tuple(properties), origin=origin)]
