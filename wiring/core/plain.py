"""Results of the library as documents of plain values, for JSON and pages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streamfactory.spi import Loss, Partition, Position, StreamError, Verdict
from streamfactory.spi.masking import mask_userinfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_SEPARATOR: Final = "\n\0\n"


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
    if isinstance(value, Loss):
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


def printable(text: str) -> str:
    """One line of text; line breaks and control characters are escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def all_of(masks: Iterable[Callable[[str], str]]) -> Callable[[str], str]:
    """Return a mask that applies several: those that there are when it is called."""

    def mask(text: str) -> str:
        for one in masks:
            text = one(text)
        return text

    return mask


def plain_error(error: StreamError) -> dict[str, Any]:
    """An error as plain values, without the credentials of any URL."""
    found: dict[str, Any] = masked(error.to_dict(), str)
    return found


def masked(document: Any, mask: Callable[[str], str]) -> Any:
    """A document of plain values without secrets; keys are not changed.

    Args:
        document: Plain values.
        mask: Masks secrets in a text. It is called once, with all texts.
    """
    texts = list(dict.fromkeys(_texts(document)))
    found = mask_userinfo(mask(_SEPARATOR.join(texts))).split(_SEPARATOR)
    if len(found) != len(texts):  # a text, or a secret, contains the separator
        found = [mask_userinfo(mask(text)) for text in texts]
    return _replaced(document, dict(zip(texts, found, strict=True)))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


def _replaced(value: Any, texts: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return texts[value]
    if isinstance(value, dict):
        return {key: _replaced(inner, texts) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_replaced(inner, texts) for inner in value]
    return value
