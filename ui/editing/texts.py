"""Values set in the text of a definition: comments and order are kept."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import tomlkit
from tomlkit.container import Container, OutOfOrderTableProxy
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable, Table

from streamfactory.spi import BOOLEAN, INTEGER, ConfigError, MisuseError
from streamfactory.wiring.config.documents import Document, read_toml, without_strings
from streamfactory.wiring.options.texts import canonical_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, MutableMapping
    from pathlib import Path

    from streamfactory.spi import OptionType

_PROPERTIES: Final = "properties"
_DOTTED: Final = re.compile(
    r"(?<![A-Za-z0-9_-])[A-Za-z0-9_-]++(?:[ \t]*+\.[ \t]*+[A-Za-z0-9_-]++)++"
)
_MOST_STEPS: Final = 100_000
"""Of tomlkit, about 0.3 seconds: it takes n^2 d^3 for n dotted keys of d parts."""
_MOST_KEYS: Final = 500
_TABLES: Final = (Table, InlineTable, Container, OutOfOrderTableProxy)


def new_text(name: str, kind: str) -> str:
    """The text of a new stream of a type."""
    document = tomlkit.document()
    document["name"] = name
    properties = tomlkit.table()
    properties["streamType"] = kind
    inner = tomlkit.table()
    properties["stream"] = tomlkit.table(is_super_table=True)
    properties["stream"][kind] = inner
    document.add(tomlkit.nl())
    document[_PROPERTIES] = properties
    return tomlkit.dumps(document)


def with_values(
    path: Path,
    text: str,
    members: Mapping[str, str],
    values: Mapping[str, str | None],
    types: Mapping[str, OptionType],
) -> str:
    """The text of a definition with some values replaced, added or removed.

    Args:
        path: The file, for messages.
        text: A definition of ours that `read_toml` accepts.
        members: New values of ``name`` and ``description``.
        values: By full key as written; None removes a property.
        types: Of the options, by the same keys: numbers and booleans have no quotes.

    Raises:
        MisuseError: misuse; the text cannot be changed in this way.
    """
    wanted = _read(path, text)
    for key, value in values.items():
        if value is None:
            wanted.pop(key, None)
        else:
            wanted[key] = value
    wanted |= {f"/{key}": value for key, value in members.items()}
    try:
        check_cost(text)
        changed = _changed(text, members, values, types)
        # What another library wrote is compared with what it was asked for.
        if _read(path, changed) == wanted:
            return changed
    except (TOMLKitError, ConfigError, LookupError, TypeError, ValueError):
        pass
    msg = "the form cannot change this text"
    raise MisuseError(msg, remedy="change the text of the file")


def _changed(
    text: str,
    members: Mapping[str, str],
    values: Mapping[str, str | None],
    types: Mapping[str, OptionType],
) -> str:
    document = tomlkit.parse(text)
    for key, value in members.items():
        _set_member(document, key, value)
    for key, one in values.items():
        typed = None if one is None else _typed(one, types.get(key))
        set_value(document[_PROPERTIES], key, typed)
    return tomlkit.dumps(document)


def check_cost(text: str) -> None:
    """Refuse, with a ValueError, what takes tomlkit long: it is no usual definition."""
    plain = without_strings(text)
    parts = [one.count(".") + 1 for one in _DOTTED.findall(plain)]
    steps = len(parts) ** 2 * max(parts, default=0) ** 3
    if steps > _MOST_STEPS or sum(map(plain.count, "=[")) > _MOST_KEYS:
        raise ValueError


def _set_member(document: Any, key: str, value: str) -> None:
    if key in document or not document.body:
        document[key] = value
        return
    # Before the first table, where it would belong to none.
    after = "name" if key != "name" and "name" in document else None
    item = tomlkit.item(value)
    if after is not None:
        document._insert_after(after, key, item)
    else:
        document._insert_at(0, key, item)


def set_value(properties: Any, key: str, value: Any) -> None:
    """Set a property where it is, or in the innermost table that it belongs to."""
    found = next((at for at in _places(properties, key) if at[1] in at[0]), None)
    if found is not None:
        table, rest = found
        if value is None:
            del table[rest]
        else:
            table[rest] = value
    elif value is not None:
        table, rest = [(properties, key), *_places(properties, key)][-1]
        table[rest] = value


def _places(table: Any, key: str) -> Iterator[tuple[MutableMapping[str, Any], str]]:
    """The tables that a key may be in, with its name there; the outermost first."""
    # A table that only has others in it is not written as one.
    if not (isinstance(table, Table) and table.is_super_table()) or key in table:
        yield table, key
    parts = key.split(".")
    for count in range(1, len(parts)):
        head = ".".join(parts[:count])
        if head in table and isinstance(table[head], _TABLES):
            yield from _places(table[head], ".".join(parts[count:]))


def _typed(text: str, kind: OptionType | None) -> Any:
    """A value as a file has it: a number or a boolean where its text is the same."""
    if kind is BOOLEAN and text in ("true", "false"):
        return text == "true"
    if kind is INTEGER and text.lstrip("-").isdecimal() and len(text) < 19:
        number = int(text)
        return number if canonical_text(number) == text else text
    return text


def _read(path: Path, text: str) -> dict[str, str]:
    """What a text sets, by key; with a slash before those beside the properties."""
    body = read_toml(Document(path, text))
    found = {f"/{key}": _plain(one) for key, one in body.items() if key != _PROPERTIES}
    waiting: list[tuple[str, Any]] = [("", body.get(_PROPERTIES, {}))]
    while waiting:
        prefix, table = waiting.pop()
        for key, value in table.items():
            if isinstance(value, dict):
                waiting.append((f"{prefix}{key}.", value))
            else:
                found[prefix + key] = _plain(value)
    return found


def _plain(value: object) -> str:
    text = canonical_text(value)
    return repr(value) if text is None else text
