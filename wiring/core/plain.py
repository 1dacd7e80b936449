"""Results of the library as documents of plain values, for JSON and pages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamfactory.spi import Loss, Partition, Position, Skipped, StreamError, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable


def plain(value: Any) -> Any:
    """A result as values that JSON has: the one place where its keys are decided.

    A dataclass becomes an object of its fields, whatever the library calls them. A
    field with a partition becomes ``topic`` and ``partition``, one with a verdict
    ``guarantee`` and ``reasons``.
    """
    simple = _simple(value)
    if simple is not None:
        return simple
    if is_dataclass(value):
        found: dict[str, Any] = {}
        for field in fields(value):
            found |= _members(field.name, getattr(value, field.name))
        return found
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value


def _simple(value: Any) -> Any:
    """The plain value of what is not shown by its fields; None for other values."""
    if isinstance(value, Loss | Skipped):
        return value.to_dict()
    if isinstance(value, Position):
        return json.loads(value.to_json())
    if isinstance(value, Verdict):
        return {"guarantee": str(value.guarantee), "reasons": list(value.reasons)}
    if isinstance(value, datetime):
        return moment(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path | StreamError):
        return str(value)
    return None


def _members(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, Partition):
        return {"topic": value.topic, "partition": value.id}
    if isinstance(value, Verdict):
        verdict: dict[str, Any] = plain(value)
        return verdict
    return {name: plain(value)}


def moment(when: datetime | None) -> str | None:
    """A time as text, to the millisecond."""
    if when is None:
        return None
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def total(values: Iterable[int | None]) -> int | None:
    """The sum; None if one of the values is unknown."""
    summed = 0
    for value in values:
        if value is None:
            return None
        summed += value
    return summed
