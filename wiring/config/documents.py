"""A configuration file while it is parsed: its text, its lines, its problems."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from streamfactory.spi import ConfigError, Problem
from streamfactory.wiring.config.definition import Property

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
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
_LONGEST_INTEGER: Final = 256
"""Maximum bits of a number. Python refuses to format thousands of digits."""


@dataclass(slots=True)
class Document:
    """One file while it is parsed."""

    path: Path
    text: str
    lines: dict[str, int] = field(default_factory=dict)
    """The line of each key, by JSON pointer."""
    headers: dict[str, int] = field(default_factory=dict)
    """The line of each table of a TOML file."""
    problems: list[Problem] = field(default_factory=list)

    def origin(self, pointer: str) -> str:
        """Return ``path:line`` of a key or the nearest enclosing key, or the path."""
        line = self.lines.get(pointer) or self.headers.get(pointer)
        while line is None and pointer:
            pointer = pointer.rpartition("/")[0]
            line = self.lines.get(pointer) or self.headers.get(pointer)
        return str(self.path) if line is None else f"{self.path}:{line}"

    def problem(
        self, key: str, what: str, origin: str, suggestion: str | None = None
    ) -> None:
        """Add one."""
        self.problems.append(Problem(clip_key(key), what, origin, suggestion))

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


def canonical_text(value: object) -> str | None:
    """Return the text of a string, an integer or a boolean; None for anything else."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value.bit_length() > _LONGEST_INTEGER:
        return None
    return str(value) if isinstance(value, str | int) else None


def not_text(value: object) -> str:
    """Return why a value has no canonical text, as the end of a sentence."""
    if value is None:
        return "is null: omit the key"
    if isinstance(value, dict):
        return "is an object, expected a string"
    if isinstance(value, list):
        return "is an array: write a string, a,b,c"
    if isinstance(value, int):
        return "is a number of more than 256 bits: put it in quotes"
    if isinstance(value, float):
        return "is a number with a fraction or exponent: put it in quotes"
    return f"is a {type(value).__name__}: put it in quotes"


def flat(
    document: Document, table: Mapping[str, Any], pointer: str, prefix: str = ""
) -> Iterator[Property]:
    """Return the values of a table, with inner tables flattened by dots."""
    for name, value in table.items():
        key, place = prefix + name, pointer + pointer_of(name)
        if isinstance(value, dict):
            yield from flat(document, value, place, f"{key}.")
            continue
        text, origin = canonical_text(value), document.origin(place)
        if text is None:
            document.problem(key, not_text(value), origin)
        else:
            yield Property(key, text, origin)


def pointer_of(*keys: str) -> str:
    """Return the JSON pointer (RFC 6901) of a path of keys."""
    return "".join(f"/{k.replace('~', '~0').replace('/', '~1')}" for k in keys)


def open_document(path: Path) -> Document:
    """Read a file of UTF-8 text, within the maximum size.

    Raises:
        ConfigError: config; it cannot be read.
    """
    return Document(path, _file_text(path))


def _file_text(path: Path) -> str:
    shown = repr(str(path))
    # Reading a pipe or a device could block or never end.
    if path.exists() and not path.is_file():
        kind = "a folder" if path.is_dir() else "not a regular file"
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
    plain = _TOML_OPAQUE.sub(_as_part, document.text)
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


def _toml_path(dotted: str) -> tuple[str, ...]:
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
