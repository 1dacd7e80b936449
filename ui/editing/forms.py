"""Forms of streams: fields from the declarations of options, and what they set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from streamfactory.spi import BOOLEAN, MisuseError
from streamfactory.ui.editing.secrets import is_literal
from streamfactory.ui.editing.texts import with_values
from streamfactory.wiring.config.crosschecks import EXCLUSIVE, NEEDS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from streamfactory.spi import Option
    from streamfactory.ui.editing.drafts import Draft, OptionSet, Remark
    from streamfactory.wiring.config.definition import Property

K = TypeVar("K", "Property", "Remark")
"""What has a key."""

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
    if draft.definition is None:
        return []
    given = _by_key(draft.definition.properties)
    remarks = _by_key(draft.remarks)
    return [
        Group(one.title, fields)
        for one in draft.options
        if (fields := tuple(_fields(one, given, remarks)))
    ]


def others_of(draft: Draft, groups: Sequence[Group]) -> list[Property]:
    """The properties of a stream that no field of its groups sets."""
    if draft.definition is None:
        return []
    shown = {one.key for group in groups for one in group.fields}
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
    groups = groups_of(draft)
    _refuse_others(form, {one.name for group in groups for one in group.fields})
    for group in groups:
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


def _refuse_others(form: Iterable[str], known: Collection[str]) -> None:
    for name in form:
        if name.startswith(PREFIX) and name not in known:
            msg = f"there is no option {name.removeprefix(PREFIX)[:80]!r} in the form"
            raise MisuseError(msg, remedy="reload the page, or change the text")


def _members(draft: Draft) -> Iterator[tuple[str, str]]:
    yield "name", draft.name
    if draft.definition is not None:
        yield "description", draft.definition.description


def _by_key(found: Iterable[K]) -> dict[str, list[K]]:
    """Properties or remarks, by their keys in lower case."""
    by_key: dict[str, list[K]] = {}
    for one in found:
        by_key.setdefault(one.key.lower(), []).append(one)
    return by_key


def _fields(
    options: OptionSet,
    properties: Mapping[str, list[Property]],
    remarks: Mapping[str, list[Remark]],
) -> Iterator[Field]:
    for option in options.options:
        if option.key == "streamType" or option.deprecated or option.no_effect:
            continue
        full = options.prefix + option.key
        spellings = [(options.prefix + one).lower() for one in option.spellings]
        given = [prop for one in spellings for prop in properties.get(one, ())]
        value = given[0].text if given else ""
        yield Field(
            given[0].key if given else full,
            option,
            value,
            _choices(option, value),
            _NEEDED.get(option.key),
            tuple(_excluded(option.key)),
            tuple(each for one in spellings for each in remarks.get(one, ())),
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
