"""Reads one file into stream definitions: ours, Java properties, Pinot's, Hop's.

Nothing is validated but the form of the file. Each property remembers the line it
stands on, and all that is wrong with a file is told at once.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from streamfactory.spi import ConfigError, Problem
from streamfactory.wiring.definition import Property, StreamDefinition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

SUFFIXES: Final = (".toml", ".json", ".properties")
MAX_BYTES: Final = 1 << 20
"""More is no stream definition: it is read by accident, or by malice."""

_MEMBERS: Final = ("name", "description", "properties")
_PINOT_MEMBERS: Final = re.compile(
    "tableName|tableIndexConfig|ingestionConfig|streamConfigs|streamConfigMaps|"
    r"streamType|stream\..*|REALTIME|OFFLINE|realtime|offline"
)


@dataclass(slots=True)
class _Document:
    """One file while it is read."""

    path: Path
    text: str
    lines: dict[str, int] = field(default_factory=dict)
    """Where each key stands, by JSON pointer."""
    headers: dict[str, int] = field(default_factory=dict)
    """Where each table of a TOML file begins."""
    problems: list[Problem] = field(default_factory=list)

    def origin(self, pointer: str) -> str:
        """``path:line`` of a key, or of the key whose value holds it, or the path."""
        line = self.lines.get(pointer) or self.headers.get(pointer)
        while line is None and pointer:
            pointer = pointer.rpartition("/")[0]
            line = self.lines.get(pointer)
        return str(self.path) if line is None else f"{self.path}:{line}"

    def problem(
        self, key: str, what: str, origin: str, suggestion: str | None = None
    ) -> None:
        """Add one."""
        self.problems.append(Problem(key, what, origin, suggestion))


def read_definitions(path: Path) -> list[StreamDefinition]:
    """Read the definitions of one file, in the order of the file.

    Args:
        path: Ends in one of `SUFFIXES`. What a JSON file is, is seen by its content.

    Raises:
        ConfigError: config; the file cannot be read, or with all problems of its form.
    """
    readers: Mapping[str, Callable[[_Document], list[StreamDefinition]]] = {
        ".toml": _read_toml,
        ".json": _read_json,
        ".properties": _read_properties,
    }
    reader = readers.get(path.suffix.lower())
    if reader is None:
        msg = f"{str(path)!r} is of no known kind: known are {', '.join(SUFFIXES)}"
        raise ConfigError(msg)
    document = _Document(path, _file_text(path))
    try:
        definitions = reader(document)
    except RecursionError as error:
        # Where the parser is content, as with TOML's dotted keys, walking is not.
        raise _syntax(document, "a definition", _TOO_DEEP, (1, 1)) from error
    for definition in definitions:
        _check_name(document, definition, definitions)
        _check_properties(document, definition)
    if document.problems:
        raise refusal(str(path), document.problems)
    return definitions


def refusal(origin: str, problems: Sequence[Problem]) -> ConfigError:
    """The error that tells all problems of one file."""
    count = len(problems)
    msg = f"{count} problem{'s' * (count > 1)} in {origin}"
    return ConfigError(msg, problems=problems)


def canonical_text(value: object) -> str | None:
    """The text of a string, an integer or a boolean; None for anything else."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int) else None


def not_text(value: object) -> str:
    """What is wrong with a value that has no canonical text, in words."""
    if value is None:
        return "is null: leave the key out"
    if isinstance(value, dict):
        return "is an object, wanted text"
    if isinstance(value, list):
        return "is an array: write text, a,b,c"
    if isinstance(value, float):
        return "is a number with a fraction or exponent: put it in quotes"
    return f"is a {type(value).__name__}: put it in quotes"


def pointer_of(*keys: str) -> str:
    """The JSON pointer (RFC 6901) of a path of keys."""
    return "".join(f"/{k.replace('~', '~0').replace('/', '~1')}" for k in keys)


# --- the file -------------------------------------------------------------------


def _file_text(path: Path) -> str:
    shown = repr(str(path))
    # A pipe or device would be waited on, or never end.
    if path.exists() and not path.is_file():
        kind = "a folder" if path.is_dir() else "no regular file"
        msg = f"{shown} is {kind}, wanted a file"
        raise ConfigError(msg)
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        reason = error.strerror if isinstance(error, OSError) else error
        msg = f"{shown} cannot be read: {reason}"
        raise ConfigError(msg) from error
    if len(content) > MAX_BYTES:
        msg = f"{shown} is larger than 1 MiB, which no stream definition is"
        raise ConfigError(msg)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        msg = f"{shown} is not UTF-8 text: see line {line}"
        raise ConfigError(msg) from error


def _check_name(
    document: _Document, definition: StreamDefinition, all_of: list[StreamDefinition]
) -> None:
    name, origin = definition.name, document.origin("/name")
    if not name.strip() or name != name.strip():
        document.problem("name", f"{name!r} is empty, or has blanks around it", origin)
    # Names are never used as paths, and nothing is to look as if they were.
    elif name in (".", "..") or not name.isprintable() or re.search(r"[/\\]", name):
        what = f"{name!r} is no name: no slash, backslash or control character"
        document.problem("name", what, origin)
    if next(d for d in all_of if d.name == name) is not definition:
        document.problem("name", f"{name!r} names two streams of this file", origin)


def _check_properties(document: _Document, definition: StreamDefinition) -> None:
    seen: dict[str, Property] = {}
    for prop in definition.properties:
        first = seen.setdefault(prop.key.lower(), prop)
        if first is not prop:
            same = first.key == prop.key
            other = "" if same else f" but for its case, as {first.key}"
            what = f"is given twice{other}; first at {first.origin}"
            document.problem(prop.key, what, prop.origin)
        try:
            f"{prop.key}{prop.text}".encode()
        except UnicodeEncodeError:
            what = "holds half of a character (a lone surrogate)"
            document.problem(ascii(prop.key), what, prop.origin)


# --- ours -----------------------------------------------------------------------


def _own(document: _Document, body: Mapping[str, Any]) -> list[StreamDefinition]:
    for key in body:
        if key not in _MEMBERS:
            near = difflib.get_close_matches(key, _MEMBERS, n=1)
            hint = f"did you mean {near[0]}?" if near else "options go under properties"
            origin = document.origin(pointer_of(key))
            document.problem(key, "is no member of a stream definition", origin, hint)
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
    properties = tuple(_flat(document, table, "", "/properties"))
    name, origin = words["name"], str(document.path)
    return [StreamDefinition(name, properties, words["description"], origin)]


def _flat(
    document: _Document, table: Mapping[str, Any], prefix: str, pointer: str
) -> Iterator[Property]:
    for name, value in table.items():
        key, place = prefix + name, pointer + pointer_of(name)
        if isinstance(value, dict):
            yield from _flat(document, value, f"{key}.", place)
            continue
        text, origin = canonical_text(value), document.origin(place)
        if text is None:
            document.problem(key, not_text(value), origin)
        else:
            yield Property(key, text, origin)


# --- TOML -----------------------------------------------------------------------

_PART: Final = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_DOTTED: Final = rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*"
_TOML_KEY: Final = re.compile(rf"[ \t]*({_DOTTED})[ \t]*=")
_TOML_HEADER: Final = re.compile(rf"[ \t]*(\[\[?)[ \t]*({_DOTTED})[ \t]*\]\]?\s*")
_TOML_OPAQUE: Final = re.compile(
    r"""#[^\n]*|\"{3}(?:[^\\]|\\.)*?\"{3}|'{3}.*?'{3}|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'""",
    re.DOTALL,
)
_TOML_PLACE: Final = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of .*)\)")


def _read_toml(document: _Document) -> list[StreamDefinition]:
    try:
        body = tomllib.loads(document.text)
    except (ValueError, RecursionError) as error:
        match = _TOML_PLACE.fullmatch(str(error))
        what = _unparsable(error) if match is None else match[1]
        place = document.text.count("\n") + 1, 1
        if match is not None and match[2]:
            place = int(match[2]), int(match[3])
        raise _syntax(document, "TOML", what, place) from error
    _find_toml_lines(document)
    return _own(document, body)


def _find_toml_lines(document: _Document) -> None:
    """Find keys at the beginning of lines; the text is known to be good TOML."""
    table: tuple[str, ...] | None = ()
    for number, line in enumerate(
        _TOML_OPAQUE.sub(_blank, document.text).split("\n"), start=1
    ):
        if header := _TOML_HEADER.fullmatch(line):
            keys = _toml_path(header[2])
            document.headers.setdefault(pointer_of(*keys), number)
            # Each part of a table may be the first to show its name.
            document.headers.setdefault(pointer_of(keys[0]), number)
            table = keys if header[1] == "[" else None
        elif table is not None and (key := _TOML_KEY.match(line)):
            keys = table + _toml_path(key[1])
            document.lines.setdefault(pointer_of(*keys), number)
            document.headers.setdefault(pointer_of(keys[0]), number)


def _blank(match: re.Match[str]) -> str:
    found = match[0]
    return "\n" * found.count("\n") if found[:3] in ('"""', "'''", "#") else found


def _toml_path(dotted: str) -> tuple[str, ...]:
    keys: list[str] = []
    inner: Any = tomllib.loads(f"{dotted} = 0")
    while isinstance(inner, dict):
        [(key, inner)] = inner.items()
        keys.append(key)
    return tuple(keys)


# --- JSON -----------------------------------------------------------------------

_JSON_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],]')


def _read_json(document: _Document) -> list[StreamDefinition]:
    try:
        body = json.loads(document.text)
    except json.JSONDecodeError as error:
        place = error.lineno, error.colno
        raise _syntax(document, "JSON", error.msg, place) from error
    except (ValueError, RecursionError) as error:
        raise _syntax(document, "JSON", _unparsable(error), (1, 1)) from error
    if not isinstance(body, dict):
        raise _syntax(document, "a JSON object", "wanted { at the beginning", (1, 1))
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
    # Imported here: most streams are ours, and pay nothing for the others.
    if "dataStream" in body:
        from streamfactory.wiring.hop import read_hop

        return read_hop
    if "properties" not in body and any(map(_PINOT_MEMBERS.fullmatch, body)):
        from streamfactory.wiring.pinot import read_pinot

        return read_pinot
    return None


def _find_json_lines(document: _Document) -> None:
    """Note the line of each key and of each object in an array, and repeated keys."""
    line, end = 1, 0
    inside: list[str | int | None] = []  # of each open value: its key or index
    for match in _JSON_TOKEN.finditer(document.text):
        line += document.text.count("\n", end, match.start())
        mark, end = match[0], match.start()
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
            if pointer in document.lines:
                what = f"is given twice; first at {document.origin(pointer)}"
                document.problem(key, what, f"{document.path}:{line}")
            document.lines[pointer] = line


# --- Java properties ------------------------------------------------------------


def _read_properties(document: _Document) -> list[StreamDefinition]:
    import javaproperties

    properties, line = [], 1
    try:
        for element in javaproperties.parse(document.text):
            if isinstance(element, javaproperties.KeyValue):
                origin = f"{document.path}:{line}"
                properties.append(Property(element.key, element.value, origin))
            line += len(re.findall(r"\r\n|\r|\n", element.source))
    except javaproperties.InvalidUEscapeError as error:
        what = f"{error.escape} is no escape: a \\u takes four hexadecimal digits"
        raise _syntax(document, "a properties file", what, (line, 1)) from error
    origin = str(document.path)
    return [StreamDefinition(document.path.stem, tuple(properties), origin=origin)]


_TOO_DEEP: Final = "it is nested too deeply"


def _unparsable(error: Exception) -> str:
    deep = isinstance(error, RecursionError)
    return _TOO_DEEP if deep else "it holds a number too long to read"


def _syntax(
    document: _Document, kind: str, what: str, place: tuple[int, int]
) -> ConfigError:
    line, column = place
    text = f"is not {kind}: {what} (line {line}, column {column})"
    problem = Problem(document.path.name, text, f"{document.path}:{line}:{column}")
    return refusal(str(document.path), [problem])
