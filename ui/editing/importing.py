"""Definitions of other systems, pasted as text: Hop's metadata, Pinot's configurations.

They become texts of ours, each with what was left out of it; Hop gets the way back.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streamfactory.spi import MisuseError
from streamfactory.ui.editing.secrets import literals, refuse_literals
from streamfactory.wiring.config.documents import Document, read_json, read_toml
from streamfactory.wiring.config.files import definitions_of
from streamfactory.wiring.config.written import toml_of
from streamfactory.wiring.core.shown import masked

if TYPE_CHECKING:
    from streamfactory.spi import Problem
    from streamfactory.wiring.config.definition import StreamDefinition

_PASTED: Final = Path("pasted.json")


@dataclass(frozen=True, slots=True)
class Imported:
    """One stream of a pasted text."""

    name: str
    text: str
    """A definition of ours."""
    left_out: tuple[str, ...]
    """What has no equivalent, or was changed."""


def import_text(text: str) -> list[Imported]:
    """The streams of a pasted JSON text.

    Args:
        text: Hop's metadata of a data stream, a table config of Pinot or a part of it,
            or a definition of ours in JSON.

    Raises:
        ConfigError: config; it is none of these, with all problems.
        MisuseError: misuse; it has literal secrets.
    """
    document = Document(_PASTED, text)
    document.body = read_json(document)
    refuse_literals(literals(document, {}), "the pasted text")
    return [_imported(one) for one in definitions_of(document)]


def _imported(definition: StreamDefinition) -> Imported:
    text = toml_of(definition)
    given = {one.key: one.text for one in definition.properties}
    found = Document(Path("imported.toml"), text)
    if read_toml(found).get("properties") != given:
        msg = f"the stream {definition.name[:80]!r} cannot be written as TOML"
        raise MisuseError(msg, remedy="leave out control characters")
    notes: list[str] = masked([_note(one) for one in definition.notes], str)
    return Imported(definition.name, text, tuple(notes))


def _note(one: Problem) -> str:
    text = f"{one.key}: {one.what}"
    return f"{text}; {one.suggestion}" if one.suggestion else text
