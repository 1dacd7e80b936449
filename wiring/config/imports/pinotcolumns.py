"""Pinot's metadata columns, and their equivalents here.

They can occur wherever a table config has a column: in transforms, filters, upsert
settings. A table config that contains one uses metadata, so its streams must include
it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streamfactory.wiring.options.texts import pointer_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_TOKEN: Final = re.compile(r"(?<![\w$])__(?:key(?![\w$])|(?:header|metadata)\$[\w.-]+)")
_METADATA: Final = {
    "offset": "_offset",
    "partition": "_partition",
    "topic": "_topic",
    "recordTimestamp": "_timestamp",
}


class PinotColumn(NamedTuple):
    """One column by its Pinot name, and its first occurrence."""

    name: str
    pointer: str

    @property
    def place(self) -> str | None:
        """Our equivalent as text; None if there is none."""
        if self.name == "__key":
            return "the column _key"
        kind, _, rest = self.name.partition("$")
        if kind == "__header":
            return f"the entry {rest!r} of the column _headers"
        ours = _METADATA.get(rest)
        return None if ours is None else f"the column {ours}"

    @property
    def is_header(self) -> bool:
        """Whether it is one of the headers."""
        return self.name.startswith("__header$")


def pinot_columns(table: Mapping[str, Any], *place: str) -> list[PinotColumn]:
    """Return the metadata columns in a table config, each once.

    Args:
        table: The table config.
        place: The path of keys to it.
    """
    found: dict[str, str] = {}
    for text, pointer in _texts(table, pointer_of(*place)):
        for token in _TOKEN.findall(text):
            found.setdefault(token, pointer)
    return [PinotColumn(name, pointer) for name, pointer in sorted(found.items())]


def _texts(value: Any, pointer: str) -> Iterator[tuple[str, str]]:
    """Yield every string and every key of a document, with its JSON pointer."""
    if isinstance(value, str):
        yield value, pointer
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            yield from _texts(entry, f"{pointer}/{index}")
    elif isinstance(value, dict):
        for key, entry in value.items():
            at = pointer + pointer_of(key)
            yield key, at
            yield from _texts(entry, at)
