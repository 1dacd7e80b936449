"""Literal secrets in definitions: the pages neither show nor save them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from streamfactory.spi import MisuseError
from streamfactory.spi.masking import mask_userinfo, userinfo_secrets
from streamfactory.spi.references import has_reference
from streamfactory.wiring.options.masking import looks_secret

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from streamfactory.spi import Option
    from streamfactory.wiring.config.definition import Property

_LINE: Final = re.compile(r"[\s#]*+(?P<key>[^=#]{1,300})=(?P<value>.*)")
_REMEDY: Final = "write ${env:NAME} or ${file:PATH} instead of it"


class Literal(NamedTuple):
    """Where a literal secret is; not what it is."""

    key: str
    line: int | None


def is_literal(text: str, *, secret: bool) -> bool:
    """Whether a value has a secret that is no reference.

    Args:
        text: The value.
        secret: Whether its key is that of a secret.
    """
    if not text or has_reference(text):
        return False
    return secret or any(userinfo_secrets(text))


def literals(
    text: str, properties: Iterable[Property], options: Mapping[str, Option]
) -> Iterator[Literal]:
    """Yield the literal secrets of a definition, those in its comments included.

    Args:
        text: The text of its file, which need not be TOML.
        properties: What could be read of it.
        options: Those that are declared, by full spelling in lower case.
    """
    for prop in properties:
        if is_literal(prop.text, secret=_is_secret(prop.key, options)):
            line = prop.origin.rpartition(":")[2]
            yield Literal(prop.key, int(line) if line.isdecimal() else None)
    read = {prop.key.lower() for prop in properties}
    ends = tuple(read | {key for key in options if not options[key].secret})
    for number, line in enumerate(text.split("\n"), start=1):
        found = _LINE.match(line)
        if has_reference(line):
            continue
        if mask_userinfo(line) != line:
            yield Literal("a URL", number)
        elif found is not None:
            key = re.sub(r"[\"'\s]", "", found["key"])
            value = found["value"].partition("#")[0].strip(" \t\"'{[")
            if value and looks_secret(key) and not _ends(key, ends):
                yield Literal(key, number)


def refuse_literals(found: Iterable[Literal], name: str) -> None:
    """Refuse a text with literal secrets.

    Raises:
        MisuseError: misuse; names keys and lines, and no value.
    """
    places = [
        one.key if one.line is None else f"{one.key} in line {one.line}"
        for one in found
    ]
    if places:
        msg = f"{name!r} has literal secrets: {', '.join(dict.fromkeys(places))}"
        raise MisuseError(msg, remedy=_REMEDY)


def _is_secret(key: str, options: Mapping[str, Option]) -> bool:
    option = options.get(key.lower())
    return looks_secret(key) if option is None else option.secret


def _ends(key: str, known: tuple[str, ...]) -> bool:
    """Whether a key of a line is one that was read: the line has its last parts."""
    lowered = key.lower()
    return any(one == lowered or one.endswith(f".{lowered}") for one in known)
