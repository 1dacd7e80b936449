"""Forms of streams: fields from the declarations of options, and what they set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from streamfactory.spi import BOOLEAN
from streamfactory.ui.editing.secrets import is_literal
from streamfactory.ui.editing.texts import with_values
from streamfactory.wiring.config.crosschecks import EXCLUSIVE, NEEDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from streamfactory.spi import Option
    from streamfactory.ui.editing.drafts import Draft, OptionSet, Remark
    from streamfactory.wiring.config.definition import Property

PREFIX: Final = "set "
"""Of the names of fields that set options, before the full key."""
_NEEDED: Final = dict(NEEDS)


@dataclass(frozen=True, slots=True)
class Field:
    """One option in a form."""

    key: str
    """As it is written in the file, or would be."""
    option: Option
    value: str
    """Empty if it is not set."""
    choices: tuple[str, ...]
    """The values that a list offers; empty for a field of text."""
    needs: str | None
    excludes: tuple[str, ...]
    remarks: tuple[Remark, ...]
    fixed: bool
    """Whether only the text can change it: it has several lines, or two spellings."""

    @property
    def name(self) -> str:
        """The name of the field in the form."""
        return PREFIX + self.key


@dataclass(frozen=True, slots=True)
class Group:
    """Fields that belong together."""

    title: str
    fields: tuple[Field, ...]

    @property
    def open(self) -> bool:
        """Whether the page shows it unfolded."""
        return any(
            one.value or one.remarks or one.option.required for one in self.fields
        )

    @property
    def count(self) -> int:
        """How many of its options are set."""
        return sum(bool(one.value) for one in self.fields)


def groups_of(draft: Draft) -> list[Group]:
    """The groups of a stream's form."""
    return [
        Group(one.title, fields)
        for one in draft.options
        if (fields := tuple(_fields(draft, one)))
    ]


def others_of(draft: Draft) -> list[Property]:
    """The properties of a stream that no field sets."""
    if draft.definition is None:
        return []
    shown = {one.key for group in groups_of(draft) for one in group.fields}
    shown |= {"streamType", "stream.type"}
    return [one for one in draft.definition.properties if one.key not in shown]


def filled(draft: Draft, path: Path, form: Mapping[str, str]) -> tuple[str, list[str]]:
    """The text of a definition after a form was sent.

    Args:
        draft: The definition before.
        path: Its file, for messages.
        form: The fields; those that are missing change nothing.

    Returns:
        The text, and the keys whose literal secrets were left out.

    Raises:
        MisuseError: misuse; the text cannot be changed in this way.
    """
    values, types, refused = dict[str, str | None](), {}, list[str]()
    for group in groups_of(draft):
        for one in group.fields:
            given = form.get(one.name, one.value).strip()
            if one.fixed or given == one.value:
                continue
            if is_literal(given, secret=one.option.secret):
                refused.append(one.key)
                continue
            values[one.key] = given or None
            types[one.key] = one.option.type
    members = {
        key: form[key].strip()
        for key, before in _members(draft)
        if key in form and form[key].strip() != before
    }
    if not values and not members:
        return draft.text, refused
    return with_values(path, draft.text, members, values, types), refused


def _members(draft: Draft) -> Iterator[tuple[str, str]]:
    yield "name", draft.name
    if draft.definition is not None:
        yield "description", draft.definition.description


def _fields(draft: Draft, options: OptionSet) -> Iterator[Field]:
    assert draft.definition is not None
    by_key: dict[str, list[Property]] = {}
    for prop in draft.definition.properties:
        by_key.setdefault(prop.key.lower(), []).append(prop)
    for option in options.options:
        if option.key == "streamType" or option.deprecated or option.no_effect:
            continue
        full = options.prefix + option.key
        spellings = [options.prefix + one for one in option.spellings]
        given = [prop for one in spellings for prop in by_key.get(one.lower(), ())]
        value = given[0].text if given else ""
        yield Field(
            given[0].key if given else full,
            option,
            value,
            _choices(option, value),
            _NEEDED.get(option.key),
            tuple(_excluded(option.key)),
            _remarks(draft.remarks, [full, *(one.key for one in given)]),
            len(given) > 1 or not value.isprintable() or bool(given and not value),
        )


def _choices(option: Option, value: str) -> tuple[str, ...]:
    words: Sequence[str] = option.type.schema.get("enum", ())
    if option.type is BOOLEAN:
        words = ("true", "false")
    # Another case, or a reference, is text.
    return tuple(words) if not value or value in words else ()


def _excluded(key: str) -> Iterator[str]:
    for group in EXCLUSIVE:
        if key in group:
            yield from (one for one in group if one != key)


def _remarks(remarks: Sequence[Remark], keys: Sequence[str]) -> tuple[Remark, ...]:
    wanted = {key.lower() for key in keys}
    return tuple(one for one in remarks if one.key.lower() in wanted)
