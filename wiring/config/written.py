"""Writes the definition of a stream as the text of its file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfactory.wiring.options.texts import toml_key, toml_string

if TYPE_CHECKING:
    from streamfactory.wiring.config.definition import StreamDefinition


def toml_of(definition: StreamDefinition) -> str:
    """The text of a TOML file that defines a stream, in the order of its properties."""
    lines = [f"name = {toml_string(definition.name)}"]
    if definition.description:
        lines.append(f"description = {toml_string(definition.description)}")
    lines += ["", "[properties]"]
    lines += [
        f"{toml_key(one.key)} = {toml_string(one.text)}"
        for one in definition.properties
    ]
    return "\n".join([*lines, ""])
