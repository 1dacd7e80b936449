"""Texts that are shown: on one line, and without secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from streamfactory.spi.masking import mask_userinfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from streamfactory.spi import StreamError

_SEPARATOR: Final = "\n\0\n"


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
