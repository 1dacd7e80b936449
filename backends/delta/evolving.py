"""Changes the schema that the log of a Delta table states."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from streamfactory.backends.delta.types import NTZ, field_of
from streamfactory.spi import SchemaMismatch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streamfactory.backends.delta.actions import Metadata, Protocol
    from streamfactory.tables.evolving import Step

WIDENING: Final = "delta.enableTypeWidening"
_FEATURES: Final = frozenset(("typeWidening", "typeWidening-preview"))
_CHANGES: Final = "delta.typeChanges"
_INNER: Final = {"array": "elementType", "map": "valueType"}
"""Keys of the types within lists and maps."""


def can_widen(metadata: Metadata, protocol: Protocol) -> bool:
    """Whether types of the table may be widened: readers have to support it."""
    is_on = metadata.configuration.get(WIDENING, "").lower() == "true"
    return is_on and not _FEATURES.isdisjoint(protocol.writer_features)


def check_times(step: Step, protocol: Protocol) -> None:
    """Refuse a field with times without a zone, where the table lacks their feature.

    Raises:
        SchemaMismatch: permanent.
    """
    if NTZ in protocol.writer_features or not _has_local_times(step.field.type):
        return
    what = f"column {'.'.join(step.path)!r} has timestamps without a time zone, which "
    what += f"the table does not have: it lacks the feature {NTZ}"
    remedy = "cast it to timestamp, or set the table property "
    remedy += f"delta.feature.{NTZ}=supported"
    raise SchemaMismatch(what, remedy=remedy)


def evolved_text(schema: str, steps: Iterable[Step]) -> str:
    """The schema of a table with fields added, and types widened.

    Args:
        schema: As JSON; what else it states stays.
        steps: What is added and widened.
    """
    root = json.loads(schema)
    for step in steps:
        if step.is_added:
            place = _place(root, step.path[:-1])
            place.holder[place.key]["fields"].append(field_of(step.field, ""))
        else:
            _widen(_place(root, step.path), field_of(step.field, "")["type"])
    return json.dumps(root, separators=(",", ":"))


class _Place(NamedTuple):
    """Where a schema has a type."""

    holder: dict[str, Any]
    key: str
    """Of the type in the holder."""
    field: dict[str, Any]
    """The innermost field with the type."""
    within: tuple[str, ...]
    """Lists and maps of the field that have it."""


def _place(root: dict[str, Any], path: Iterable[str]) -> _Place:
    place = _Place({"type": root}, "type", {}, ())
    for name in path:
        kind = place.holder[place.key]
        if kind["type"] == "struct":
            field = next(one for one in kind["fields"] if one["name"] == name)
            place = _Place(field, "type", field, ())
        else:
            within = (*place.within, name)
            place = _Place(kind, _INNER[kind["type"]], place.field, within)
    return place


def _widen(place: _Place, to: Any) -> None:
    """Replace a type, and record it, as the section Type Widening of the protocol."""
    change = {"fromType": place.holder[place.key], "toType": to}
    if place.within:
        change["fieldPath"] = ".".join(place.within)
    place.holder[place.key] = to
    metadata = place.field.setdefault("metadata", {})
    metadata.setdefault(_CHANGES, []).append(change)


def _has_local_times(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return kind.tz is None
    children = map(kind.field, range(kind.num_fields))
    return any(_has_local_times(one.type) for one in children)
