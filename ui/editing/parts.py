"""The parts of a pipeline as lists: their fields, and moves of them in its text.

A part is a table of the file: ``[source]``, or one of ``[[sources]]``, ``[[lookups]]``,
``[[steps]]``, ``[[expectations]]``, ``[[sinks]]`` and ``[[tables]]``. A move is one of
lines, so that comments move with what they are about.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import tomlkit
from tomlkit.exceptions import TOMLKitError

from streamfactory.spark.pipelines.options import (
    EXPECTATION_OPTIONS,
    LOOKUP_OPTIONS,
    LOOKUP_STREAM_OPTIONS,
    LOOKUP_TABLE_OPTIONS,
    SINK_OPTIONS,
    SOURCE_OPTIONS,
    STEP_OPTIONS,
    TABLE_OPTIONS,
)
from streamfactory.spi import ConfigError, MisuseError
from streamfactory.ui.editing.files import plain_lines
from streamfactory.ui.editing.texts import check_cost, set_value
from streamfactory.wiring.config.documents import Document, read_toml
from streamfactory.wiring.options.shared import by_spelling
from streamfactory.wiring.options.texts import canonical_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from streamfactory.spi import Option

PREFIX: Final = "part "
"""Of the names of fields, before the section, the number of the part, and the key."""
MOST_PARTS: Final = 60
"""Of a pipeline whose parts are listed; others are changed as text."""
SECTIONS: Final[Mapping[str, Sequence[Option]]] = {
    "sources": SOURCE_OPTIONS,
    "lookups": (*LOOKUP_OPTIONS, *LOOKUP_STREAM_OPTIONS, *LOOKUP_TABLE_OPTIONS),
    "steps": STEP_OPTIONS,
    "expectations": EXPECTATION_OPTIONS,
    "sinks": SINK_OPTIONS,
    "tables": TABLE_OPTIONS,
}
"""The lists of a file, in the order of the page, with the options of their parts."""
_SINGLE: Final = "source"
_NEW: Final = {
    "sources": 'stream = ""',
    "lookups": 'id = ""\nstream = ""\nkey = ""',
    "steps": 'id = ""\nsql = ""',
    "expectations": 'name = ""\ncondition = ""',
    "sinks": 'stream = ""',
    "tables": 'name = ""\nformat = ""\npath = ""',
}
_MOVES: Final = {"up": -1, "down": 1}
_REFUSED: Final = "the list cannot change this text"
_REMEDY: Final = "change the text of the file"


@dataclass(frozen=True, slots=True)
class PartField:
    """One value of a part."""

    name: str
    """Of the field in the form."""
    key: str
    option: Option
    value: str
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """One table of a list."""

    title: str
    section: str
    number: int
    fields: tuple[PartField, ...]
    others: tuple[str, ...]
    """Keys that are set, and have no field: options of a stream that it replaces."""
    last: bool
    """Whether it is the last one of its list."""

    def action(self, verb: str) -> str:
        """The value of a button."""
        return f"{verb} {self.section} {self.number}"


def parts_of(path: Path, text: str) -> dict[str, list[Part]] | None:
    """The parts of a pipeline by list; None if its text cannot be listed.

    Args:
        path: Of its file, for messages.
        text: The text.
    """
    try:
        body = read_toml(Document(path, text))
    except ConfigError:
        return None
    found = {section: list(_parts(section, body)) for section in SECTIONS}
    return found if sum(map(len, found.values())) <= MOST_PARTS else None


def with_parts(path: Path, text: str, form: Mapping[str, str], action: str) -> str:
    """The text of a pipeline after a form of its parts was sent.

    Args:
        path: Of its file, for messages.
        text: The text before.
        form: The fields; those that are missing change nothing.
        action: A button: ``add SECTION``; or ``up``, ``down`` or ``remove`` with
            ``SECTION NUMBER``; empty for none.

    Raises:
        MisuseError: misuse; the text cannot be changed in this way.
    """
    parts = parts_of(path, text)
    if parts is None:
        raise MisuseError(_REFUSED, remedy=_REMEDY)
    given = {one for one in form if one.startswith(PREFIX)}
    fields = {one.name for list_ in parts.values() for p in list_ for one in p.fields}
    if not given <= fields:
        msg = "the form has a field of a part that the text has not"
        raise MisuseError(msg, remedy="reload the page")
    text = _filled(path, text, parts, form)
    return _acted(path, text, parts, action) if action else text


def _parts(section: str, body: Mapping[str, Any]) -> Iterator[Part]:
    tables = body.get(section, [])
    if section == "sources" and isinstance(body.get(_SINGLE), dict):
        tables = [body[_SINGLE]]
    if not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
        return
    known = by_spelling(SECTIONS[section])
    for number, table in enumerate(tables):
        values = dict(_flat(table))
        written = {key.lower(): key for key in values}
        fields = []
        for option in SECTIONS[section]:
            spelt = (written.get(one.lower()) for one in option.spellings)
            key = next(filter(None, spelt), option.key)
            value = values.get(key, "")
            words = tuple(option.type.schema.get("enum", ()))
            fields.append(
                PartField(
                    f"{PREFIX}{section} {number} {key}",
                    key,
                    option,
                    value,
                    words if not value or value in words else (),
                )
            )
        name = values.get("id") or values.get("name") or values.get("stream") or ""
        title = f"{section.removesuffix('s').capitalize()} {number + 1}"
        others = tuple(key for key in values if key.lower() not in known)
        last = number == len(tables) - 1
        full = f"{title}: {name}" if name else title
        yield Part(full, section, number, tuple(fields), others, last)


def _filled(
    path: Path,
    text: str,
    parts: Mapping[str, Sequence[Part]],
    form: Mapping[str, str],
) -> str:
    changes = {
        (one.section, one.number, field.key): given
        for list_ in parts.values()
        for one in list_
        for field in one.fields
        if (given := _trimmed(form.get(field.name, field.value)))
        != _trimmed(field.value)  # spaces of the file are not a change of it
    }
    if not changes:
        return text
    wanted = _read(path, text)
    try:
        check_cost(text)
        document: Any = tomlkit.parse(text)
        for (section, number, key), value in changes.items():
            single = section == "sources" and _SINGLE in document
            table = document[_SINGLE] if single else document[section][number]
            set_value(table, key, _item(value) if value else None)
            at = (_SINGLE,) if single else (section, str(number))
            wanted.pop("/".join((*at, key)), None)
            if value:
                wanted["/".join((*at, key))] = value
        changed = tomlkit.dumps(document)
    except (TOMLKitError, LookupError, TypeError, ValueError) as error:
        raise MisuseError(_REFUSED, remedy=_REMEDY) from error
    # What another library wrote is compared with what it was asked for.
    return _checked(path, changed, wanted)


def _acted(
    path: Path, text: str, parts: Mapping[str, Sequence[Part]], action: str
) -> str:
    verb, _, rest = action.partition(" ")
    section, _, number = rest.partition(" ")
    if section not in SECTIONS or not (number or verb == "add"):
        msg = f"{action[:80]!r} is no change of a list"
        raise MisuseError(msg, remedy="use the buttons of the page")
    if verb == "add":
        return _added(path, text, section, len(parts[section]))
    found = [one for one in parts[section] if str(one.number) == number]
    if not found or verb not in (*_MOVES, "remove"):
        msg = f"{action[:80]!r} is of a part that the text has not"
        raise MisuseError(msg, remedy="reload the page")
    body = read_toml(Document(path, text))
    index = found[0].number
    if verb == "remove":
        if section not in body:
            wanted = {key: one for key, one in body.items() if key != _SINGLE}
        else:
            kept = [one for n, one in enumerate(body[section]) if n != index]
            wanted = {**body, section: kept}
        changed = _moved(path, text, section, index, None)
        if not wanted.get(section, [0]):
            del wanted[section]
    else:
        other = index + _MOVES[verb]
        if not 0 <= other < len(parts[section]):
            msg = "the part is at the end of its list already"
            raise MisuseError(msg, remedy="reload the page")
        order = [*body[section]]
        order[index], order[other] = order[other], order[index]
        wanted = {**body, section: order}
        changed = _moved(path, text, section, min(index, other), max(index, other))
    return _same(path, changed, wanted)


def _added(path: Path, text: str, section: str, number: int) -> str:
    """The text with another part at the end of its list, which has a number of them."""
    body = read_toml(Document(path, text))
    if section == "sources" and _SINGLE in body:
        text = _as_list(path, text, body)
    end = "" if text.endswith("\n") or not text else "\n"
    blocks = _blocks(path, text)
    ends = [last for (name, _), (_, last) in blocks.items() if name == section]
    lines = (text + end).split("\n")
    at = max(ends, default=len(lines) - 1)
    while at > 0 and not lines[at - 1].strip():
        at -= 1  # before the empty lines that separate it from the next one
    new = ["", f"[[{section}]]", *_NEW[section].split("\n")]
    changed = "\n".join([*lines[:at], *new, *lines[at:]])
    given = _read(path, _NEW[section]).items()
    wanted = {f"{section}/{number}/{key}": one for key, one in given}
    return _checked(path, changed, _read(path, text) | wanted)


def _as_list(path: Path, text: str, body: Mapping[str, Any]) -> str:
    """The text with its one source as the first of a list, by the same id."""
    found = _blocks(path, text).get((_SINGLE, 0))
    lines = text.split("\n")
    headers = Document(path, text)
    read_toml(headers)
    at = headers.headers.get(f"/{_SINGLE}", 0) - 1
    if found is None or not re.match(r"\s*\[source\]", lines[at]):
        raise MisuseError(_REFUSED, remedy=_REMEDY)
    source = body[_SINGLE]
    lines[at] = lines[at].replace("[source]", "[[sources]]", 1)
    if not any(key.lower() == "id" for key in source):
        lines.insert(at + 1, 'id = "input"')
        source = {"id": "input", **source}
    wanted = {key: one for key, one in body.items() if key != _SINGLE}
    changed = "\n".join(lines)
    return _same(path, changed, {**wanted, "sources": [source]})


def _moved(path: Path, text: str, section: str, first: int, other: int | None) -> str:
    """The text with two parts of a list exchanged, or one removed."""
    blocks, lines = _blocks(path, text), text.split("\n")
    single = (section, first) not in blocks and section == "sources"
    start, end = blocks.get((_SINGLE, 0) if single else (section, first), (0, 0))
    if not end:
        raise MisuseError(_REFUSED, remedy=_REMEDY)
    if other is None:
        return "\n".join([*lines[:start], *lines[end:]])
    begin, last = blocks.get((section, other), (0, 0))
    if not last:
        raise MisuseError(_REFUSED, remedy=_REMEDY)
    return "\n".join(
        [
            *lines[:start],
            *_apart(lines[begin:last]),
            *lines[end:begin],
            *_apart(lines[start:end]),
            *lines[last:],
        ]
    )


def _apart(block: list[str]) -> list[str]:
    """The lines of a block, with an empty one at its end."""
    return block if block and not block[-1].strip() else [*block, ""]


def _blocks(path: Path, text: str) -> dict[tuple[str, int], tuple[int, int]]:
    """The lines of the tables at the top of a file: first, and that after the last.

    Comments directly above a table belong to it.
    """
    document, lines = Document(path, text), text.split("\n")
    read_toml(document)
    heads = dict[int, tuple[str, int]]()
    for pointer, line in document.headers.items():
        name, _, number = pointer[1:].partition("/")
        is_head = lines[line - 1].lstrip().startswith("[")
        # `/steps` is where `/steps/0` is.
        if is_head and (number.isdecimal() or (not number and line not in heads)):
            heads[line] = (name, int(number or 0))
    starts = {}
    for line in sorted(heads):
        at = line - 1
        while at > 0 and lines[at - 1].lstrip().startswith("#"):
            at -= 1
        starts[at] = heads[line]
    ordered = [*starts, len(lines)]
    return {
        starts[at]: (at, ordered[index + 1]) for index, at in enumerate(ordered[:-1])
    }


def _same(path: Path, text: str, wanted: Mapping[str, Any]) -> str:
    """A text that sets what is wanted, tables without values included."""
    try:
        if read_toml(Document(path, text)) == wanted:
            return text
    except ConfigError:
        pass
    raise MisuseError(_REFUSED, remedy=_REMEDY)


def _checked(path: Path, text: str, wanted: Mapping[str, str]) -> str:
    try:
        if _read(path, text) == wanted:
            return text
    except ConfigError:
        pass
    raise MisuseError(_REFUSED, remedy=_REMEDY)


def _item(value: str) -> Any:
    return tomlkit.string(value, multiline=True) if "\n" in value else value


def _trimmed(text: str) -> str:
    """A value as a file has it; a text of one line without spaces around it."""
    text = plain_lines(text)
    return text if "\n" in text else text.strip()


def _read(path: Path, text: str) -> dict[str, str]:
    """What a text sets, by its path."""
    return dict(_flat(read_toml(Document(path, text)), "/"))


def _flat(body: Mapping[str, Any], between: str = ".") -> Iterator[tuple[str, str]]:
    """Yield all values by their paths; keys of tables in lists are joined by dots."""
    for key, value in body.items():
        if isinstance(value, dict):
            for rest, inner in _flat(value):
                yield f"{key}{between}{rest}", inner
        elif isinstance(value, list) and all(isinstance(one, dict) for one in value):
            for number, one in enumerate(value):
                for rest, inner in _flat(one):
                    yield f"{key}/{number}/{rest}", inner
        else:
            text = canonical_text(value)
            yield key, repr(value) if text is None else text
