"""Step 1 of a configuration file: parses its text, and notes the line of each key."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streamfactory.spi import ConfigError, Problem
from streamfactory.wiring.core.places import is_folder, is_special
from streamfactory.wiring.options.texts import pointer_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

MAX_BYTES: Final = 1 << 20
"""Maximum size: a larger file is not a configuration, but an accident or an attack."""
MAX_DEPTH: Final = 32
"""Maximum nesting of tables and arrays. Parsers take quadratic time."""
MAX_POINTER: Final = 1024
"""Maximum length of a key's JSON pointer; a pointer is stored for each key."""
MAX_VALUES: Final = 20_000
"""Maximum number of keys and array elements in one file."""
_LONGEST_KEY: Final = 200
"""Maximum characters of a key in messages."""


class Line(NamedTuple):
    """A property of a Java properties file."""

    key: str
    text: str
    number: int


@dataclass(slots=True)
class Document:
    """One file as it was parsed."""

    path: Path
    text: str
    lines: dict[str, int] = field(default_factory=dict)
    """The line of each key, by JSON pointer."""
    headers: dict[str, int] = field(default_factory=dict)
    """The line of each table of a TOML file."""
    problems: list[Problem] = field(default_factory=list)
    body: Any = None
    """What `read_document` parsed: an object, or `Line` by line."""
    failure: ConfigError | None = None
    """Why `read_document` could not parse it."""

    def check_size(
        self, *, depth: int = 0, pointer: int = 0, values: int = 0, line: int = 1
    ) -> None:
        """Refuse oversized documents before time and memory are spent on them.

        Args:
            depth: Nesting depth of a value.
            pointer: Length of its JSON pointer.
            values: Keys and elements counted so far.
            line: Its line.

        Raises:
            ConfigError: config; one of them exceeds its maximum.
        """
        if depth > MAX_DEPTH:
            what = TOO_DEEP
        elif pointer > MAX_POINTER:
            what = f"a key and its tables have more than {MAX_POINTER} characters"
        elif values > MAX_VALUES:
            what = f"it has more than {MAX_VALUES} values"
        else:
            return
        raise syntax(self, "a configuration", what, (line, 1))


def refusal(origin: str, problems: Sequence[Problem]) -> ConfigError:
    """Return the error with all problems of one file."""
    count = len(problems)
    msg = f"{count} problem{'s' * (count > 1)} in {origin}"
    return ConfigError(msg, problems=problems)


def clip_key(key: str) -> str:
    """Return a key of any length, shortened for messages."""
    return key if len(key) <= _LONGEST_KEY else f"{key[: _LONGEST_KEY - 3]}..."


def read_document(path: Path) -> Document:
    """Read and parse a file by its suffix; a failure is kept in the document.

    Args:
        path: Ends in one of `SUFFIXES`.
    """
    parse = _PARSERS.get(path.suffix.lower())
    if parse is None:
        known = f"known are {', '.join(SUFFIXES)}"
        failure = ConfigError(f"{str(path)!r} has an unknown suffix: {known}")
        return Document(path, "", failure=failure)
    try:
        document = open_document(path)
        document.body = parse(document)
    except ConfigError as error:
        return Document(path, "", failure=error)
    return document


def open_document(path: Path) -> Document:
    """Read a file of UTF-8 text, within the maximum size.

    Raises:
        ConfigError: config; it cannot be read.
    """
    return Document(path, _file_text(path))


def _file_text(path: Path) -> str:
    shown = repr(str(path))
    # Reading a pipe or a device could block or never end.
    if is_folder(path) or is_special(path):
        kind = "a folder" if is_folder(path) else "not a regular file"
        msg = f"{shown} is {kind}, expected a file"
        raise ConfigError(msg)
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        reason = error.strerror if isinstance(error, OSError) else error
        msg = f"{shown} cannot be read: {reason}"
        raise ConfigError(msg) from error
    if len(content) > MAX_BYTES:
        msg = f"{shown} is larger than 1 MiB, the maximum of a configuration"
        raise ConfigError(msg)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        msg = f"{shown} is not UTF-8 text: see line {line}"
        raise ConfigError(msg) from error


# --- TOML -----------------------------------------------------------------------

_PART: Final = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_DOTTED: Final = rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*"
_TOML_KEY: Final = re.compile(rf"[ \t]*({_DOTTED})[ \t]*=")
_TOML_HEADER: Final = re.compile(rf"[ \t]*(\[\[?)[ \t]*({_DOTTED})[ \t]*\]\]?\s*")
# Strings and comments, malformed ones too. No alternative can fail after its first
# character, so that matching takes linear time.
_TOML_OPAQUE: Final = re.compile(
    r"""
    \#[^\n]*+
    | "{3} (?:[^"\\] | \\. | "{1,2}(?!"))*+ (?:"{3,5} | \\?\Z)
    | '{3} (?:[^'] | '{1,2}(?!'))*+ (?:'{3,5} | \Z)
    | " (?:[^"\\\n] | \\.)*+ "?
    | ' [^'\n]*+ '?
    """,
    re.DOTALL | re.VERBOSE,
)
_TOML_DEEP: Final = re.compile(
    rf"(?<![A-Za-z0-9_-])(?:[A-Za-z0-9_-]++[ \t]*+\.[ \t]*+){{{MAX_DEPTH}}}"
)
_TOML_PLACE: Final = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of .*)\)")


def read_toml(document: Document) -> dict[str, Any]:
    """Parse a TOML file, and record the line of each key in the document.

    Raises:
        ConfigError: config; it is not TOML.
    """
    _check_toml_size(document)
    try:
        body = tomllib.loads(document.text)
    except (ValueError, RecursionError) as error:
        match = _TOML_PLACE.fullmatch(str(error))
        what = unparsable(error) if match is None else match[1]
        place = document.text.count("\n") + 1, 1
        if match is not None and match[2]:
            place = int(match[2]), int(match[3])
        raise syntax(document, "TOML", what, place) from error
    _check_body(document, body)
    _find_toml_lines(document)
    return body


def _check_toml_size(document: Document) -> None:
    """Check what makes the parser quadratic.

    The parts of a key, and the number of keys.
    """
    plain = without_strings(document.text)
    values = sum(map(plain.count, "=,["))
    deep = _TOML_DEEP.search(plain)
    line = 1 if deep is None else plain.count("\n", 0, deep.start()) + 1
    depth = 0 if deep is None else MAX_DEPTH + 1
    document.check_size(depth=depth, values=values, line=line)


def _check_body(document: Document, body: Mapping[str, Any]) -> None:
    """Check depth and pointers of the parsed values."""
    waiting: list[tuple[Any, int, int]] = [(body, 0, 0)]
    while waiting:
        value, depth, pointer = waiting.pop()
        document.check_size(depth=depth, pointer=pointer)
        if isinstance(value, dict):
            waiting += [(v, depth + 1, pointer + len(k) + 1) for k, v in value.items()]
        elif isinstance(value, list):
            waiting += [(inner, depth + 1, pointer + 2) for inner in value]


def comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield the comments of TOML, each with the number of its line."""
    number, end = 1, 0
    for match in _TOML_OPAQUE.finditer(text):
        number += text.count("\n", end, match.start())
        end = match.start()
        if match[0].startswith("#"):
            yield number, match[0]


def without_strings(text: str) -> str:
    """Return TOML with bare words for its strings, and without its comments."""
    return _TOML_OPAQUE.sub(_as_part, text)


def _as_part(match: re.Match[str]) -> str:
    """Return a string as a bare key; empty for a comment."""
    found = match[0]
    return "" if found[0] == "#" else "s" + "\n" * found.count("\n")


def _find_toml_lines(document: Document) -> None:
    """Find keys at the beginning of lines, in text that was parsed as TOML."""
    table: tuple[str, ...] = ()
    counts: dict[tuple[str, ...], int] = {}
    for number, line in enumerate(
        _TOML_OPAQUE.sub(_blank, document.text).split("\n"), start=1
    ):
        if header := _TOML_HEADER.fullmatch(line):
            table = keys = _toml_path(header[2])
            if header[1] == "[[":
                # The tables of an array are distinguished by their index.
                counts[keys] = counts.get(keys, -1) + 1
                table = (*keys, str(counts[keys]))
            document.headers.setdefault(pointer_of(*table), number)
            # Each part of a dotted name may be the first occurrence of its table.
            document.headers.setdefault(pointer_of(keys[0]), number)
        elif key := _TOML_KEY.match(line):
            keys = table + _toml_path(key[1])
            document.lines.setdefault(pointer_of(*keys), number)
            document.headers.setdefault(pointer_of(keys[0]), number)


def _blank(match: re.Match[str]) -> str:
    found = match[0]
    long = found.startswith(('"""', "'''", "#"))
    return "\n" * found.count("\n") if long else found


@lru_cache(maxsize=1024)
def _toml_path(dotted: str) -> tuple[str, ...]:
    """Return the parts of a key; the files of a catalogue have the same keys."""
    keys: list[str] = []
    inner: Any = tomllib.loads(f"{dotted} = 0")
    while isinstance(inner, dict):
        [(key, inner)] = inner.items()
        keys.append(key)
    return tuple(keys)


TOO_DEEP: Final = "it is nested too deeply"


def unparsable(error: Exception) -> str:
    """Return why a parser failed that reports no line."""
    deep = isinstance(error, RecursionError)
    return TOO_DEEP if deep else "it contains a number with too many digits"


def syntax(
    document: Document, kind: str, what: str, place: tuple[int, int]
) -> ConfigError:
    """Return the syntax error of a file."""
    line, column = place
    text = f"is not {kind}: {what} (line {line}, column {column})"
    problem = Problem(document.path.name, text, f"{document.path}:{line}:{column}")
    return refusal(str(document.path), [problem])


# --- JSON -----------------------------------------------------------------------

_JSON_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],]')


def read_json(document: Document) -> dict[str, Any]:
    """Parse a JSON file, and record the line of each key in the document.

    Raises:
        ConfigError: config; it is no JSON object, or a key of it is repeated.
    """
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
    return body


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
                first = document.lines[pointer]
                what = f"is defined twice; first at {document.path}:{first}"
                origin = f"{document.path}:{line}"
                document.problems.append(Problem(clip_key(key), what, origin))
            document.lines[pointer] = line


# --- Java properties ------------------------------------------------------------


def _read_properties(document: Document) -> list[Line]:
    import javaproperties

    found, line = list[Line](), 1
    try:
        for element in javaproperties.parse(document.text):
            if isinstance(element, javaproperties.KeyValue):
                document.check_size(values=len(found), line=line)
                found.append(Line(element.key, element.value, line))
            line += len(re.findall(r"\r\n|\r|\n", element.source))
    except javaproperties.InvalidUEscapeError as error:
        what = f"{error.escape} is not an escape: \\u takes four hexadecimal digits"
        raise syntax(document, "a properties file", what, (line, 1)) from error
    return found


_PARSERS: Final[Mapping[str, Callable[[Document], Any]]] = {
    ".toml": read_toml,
    ".json": read_json,
    ".properties": _read_properties,
}
SUFFIXES: Final = tuple(_PARSERS)
