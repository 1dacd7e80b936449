"""Step 1 of a configuration file: stream definitions from what was parsed.

Ours, Java properties, Pinot's and Hop's. Only the form is validated. Each property has
the line where it was found, and all problems of a file are reported at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from streamfactory.spi import ConfigError, Problem
from streamfactory.wiring.config.definition import Property, StreamDefinition
from streamfactory.wiring.config.documents import Document, clip_key, refusal
from streamfactory.wiring.core.anchoring import project_of
from streamfactory.wiring.core.nearest import nearest
from streamfactory.wiring.options.texts import canonical_text, not_text, pointer_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MEMBERS: Final = ("name", "description", "properties")
_PINOT_MEMBERS: Final = re.compile(
    "tableName|tableIndexConfig|ingestionConfig|streamConfigs|streamConfigMaps|"
    r"streamType|stream\..*|REALTIME|OFFLINE|realtime|offline"
)


def definitions_of(document: Document) -> list[StreamDefinition]:
    """Return the definitions of a file, in its order.

    Args:
        document: Of `read_document`. The kind of a JSON file is detected by its
            content.

    Raises:
        ConfigError: config; the file cannot be read, or is malformed; with all
            problems.
    """
    if document.failure is not None:
        raise document.failure
    body, problems = document.body, list(document.problems)
    definitions: list[StreamDefinition] = []
    if isinstance(body, list):
        found = _of_lines(document)
    elif document.path.suffix.lower() == ".json":
        found = _of_json(document)
    else:
        found = _own(document)
    folder = project_of(document.path.parent)
    for one in found:
        if isinstance(one, Problem):
            problems.append(one)
        else:
            placed = (replace(prop, folder=folder) for prop in one.properties)
            definitions.append(replace(one, properties=tuple(placed)))
    names, origin = list[str](), origin_of(document, "/name")
    for definition in definitions:
        name = definition.name
        problems += _name_problems(name, origin, again=name in names)
        problems += property_problems(definition.properties)
        names.append(name)
    if problems:
        raise refusal(str(document.path), problems)
    return definitions


def origin_of(document: Document, pointer: str) -> str:
    """Return ``path:line`` of a key or the nearest enclosing key, or the path."""
    line = document.lines.get(pointer) or document.headers.get(pointer)
    while line is None and pointer:
        pointer = pointer.rpartition("/")[0]
        line = document.lines.get(pointer) or document.headers.get(pointer)
    return str(document.path) if line is None else f"{document.path}:{line}"


def flat(
    document: Document, table: Mapping[str, Any], pointer: str, prefix: str = ""
) -> Iterator[Property | Problem]:
    """Yield the values of a table, with inner tables flattened by dots."""
    for name, value in table.items():
        key, place = prefix + name, pointer + pointer_of(name)
        if isinstance(value, dict):
            yield from flat(document, value, place, f"{key}.")
            continue
        text, origin = canonical_text(value), origin_of(document, place)
        if text is None:
            yield Problem(clip_key(key), not_text(value), origin)
        else:
            yield Property(key, text, origin)


# --- the kinds of files -----------------------------------------------------------

_Found = Iterator[StreamDefinition | Problem]


def _own(document: Document) -> _Found:
    body: Mapping[str, Any] = document.body
    for key in body:
        if key not in _MEMBERS:
            near = nearest(key, _MEMBERS)
            hint = f"did you mean {near}?" if near else "options go under properties"
            origin, what = origin_of(document, pointer_of(key)), "is not a key of a "
            yield Problem(clip_key(key), what + "stream definition", origin, hint)
    words = {"name": document.path.stem, "description": ""}
    for key in [key for key in words if key in body]:
        if isinstance(body[key], str):
            words[key] = body[key]
        else:
            yield Problem(key, "is not a string", origin_of(document, f"/{key}"))
    table, properties = body.get("properties"), list[Property]()
    if not isinstance(table, dict):
        what = "is missing" if table is None else "is not a table of keys and values"
        yield Problem("properties", what, origin_of(document, "/properties"))
        table = {}
    for found in flat(document, table, "/properties"):
        if isinstance(found, Problem):
            yield found
        else:
            properties.append(found)
    name, origin = words["name"], str(document.path)
    yield StreamDefinition(name, tuple(properties), words["description"], origin)


def _of_json(document: Document) -> _Found:
    # Imported here: most files have our own format and do not need these.
    if "dataStream" in document.body:
        from streamfactory.wiring.config.imports.hop import read_hop as read
    elif "properties" not in document.body and any(
        map(_PINOT_MEMBERS.fullmatch, document.body)
    ):
        from streamfactory.wiring.config.imports.pinot import read_pinot as read
    else:
        yield from _own(document)
        return
    try:
        yield from read(document.body, partial(origin_of, document), document.path.stem)
    except ConfigError as error:
        if not error.problems:
            raise
        yield from error.problems


def _of_lines(document: Document) -> _Found:
    origin = str(document.path)
    properties = (Property(k, text, f"{origin}:{n}") for k, text, n in document.body)
    yield StreamDefinition(document.path.stem, tuple(properties), origin=origin)


# --- rules for all kinds ----------------------------------------------------------


def _name_problems(name: str, origin: str, *, again: bool) -> Iterator[Problem]:
    what = name_problem(name)
    if what is not None:
        yield Problem("name", f"{name!r} {what}", origin)
    if again:
        yield Problem("name", f"{name!r} names two streams of this file", origin)


def name_problem(name: str) -> str | None:
    """Return why a stream cannot have a name, after the name; None if it can."""
    if not name.strip() or name != name.strip():
        return "is empty, or has leading or trailing blanks"
    # Names are never used as paths, and must not look like paths.
    if name in (".", "..") or not name.isprintable() or re.search(r"[/\\]", name):
        return "is not a valid name: it has a slash, backslash or control character"
    return None


def property_problems(properties: Sequence[Property]) -> Iterator[Problem]:
    """Yield what no set of properties may have: a key twice, or half of a character."""
    seen: dict[str, Property] = {}
    for prop in properties:
        first = seen.setdefault(prop.key.lower(), prop)
        if first is not prop:
            same = first.key == prop.key
            other = "" if same else f" in another case, as {first.key}"
            what = f"is defined twice{other}; first at {first.origin}"
            yield Problem(clip_key(prop.key), what, prop.origin)
        try:
            f"{prop.key}{prop.text}".encode()
        except UnicodeEncodeError:
            what = "contains a lone surrogate (half of a character)"
            yield Problem(clip_key(ascii(prop.key)), what, prop.origin)
