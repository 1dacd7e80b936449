"""Literal secrets in definitions: the pages neither show nor save them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streamfactory.spi import MisuseError
from streamfactory.spi.masking import userinfo_secrets
from streamfactory.spi.references import has_reference
from streamfactory.wiring.config.documents import comments
from streamfactory.wiring.options.masking import looks_secret
from streamfactory.wiring.options.texts import canonical_text, pointer_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from streamfactory.spi import Option
    from streamfactory.wiring.config.documents import Document

_ASSIGNED: Final = re.compile(
    r"""
    (?: ^ | [\#{,] ) \s*+ (?P<key> [^=\#{},]{1,300} ) =
    # Only looked at: the next key may be within the value.
    (?= \s* (?P<value> \"{3} | '{3} | "[^"]{0,300} | '[^']{0,300} | [^,\#]{0,300} ) )
    """,
    re.VERBOSE,
)
"""Keys and values in comments, and in lines that no parser takes."""
_OPENING: Final = ('"""', "'''", "[")
"""Values that go on in the next line."""
_MOST_PLACES: Final = 20
"""Secrets that a message names."""
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
    if secret and text and not has_reference(text):
        return True
    return not all(map(has_reference, userinfo_secrets(text)))


def literals(document: Document, options: Mapping[str, Option]) -> Iterator[Literal]:
    """Yield the literal secrets of a definition, those in its comments included.

    Args:
        document: The text of its file; without a body if it is not TOML.
        options: Those that are declared, by full spelling in lower case.
    """
    if document.body is not None:
        for key, pointer, value in _leaves(document.body):
            option = options.get(key.lower())
            secret = looks_secret(key) if option is None else option.secret
            if is_literal(value, secret=secret):
                yield Literal(key, document.lines.get(pointer))
        lines = comments(document.text)
    else:
        lines = enumerate(document.text.split("\n"), start=1)
    public = {
        ending
        for key, option in options.items()
        if not option.secret
        for ending in _endings(key)
    }
    for number, line in lines:
        for key in _secretive(line):
            if key.lower() not in public:
                yield Literal(key, number)
        if any(
            "://" in word and is_literal(word, secret=False) for word in line.split()
        ):
            yield Literal("a URL", number)


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
        shown = [*dict.fromkeys(places)]
        more = [f"and {len(shown) - _MOST_PLACES} more"] * (len(shown) > _MOST_PLACES)
        listed = ", ".join(shown[:_MOST_PLACES] + more)
        msg = f"{name!r} has literal secrets: {listed}"
        raise MisuseError(msg, remedy=_REMEDY)


def _leaves(body: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield the values of a parsed file: key, JSON pointer, and text."""
    waiting: list[tuple[str, str, Any]] = [("", "", body)]
    while waiting:
        key, pointer, value = waiting.pop()
        if isinstance(value, dict):
            waiting += [
                (f"{key}.{name}", pointer + pointer_of(name), inner)
                for name, inner in value.items()
            ]
        elif isinstance(value, list):
            waiting += [
                (key, f"{pointer}/{number}", inner)
                for number, inner in enumerate(value)
            ]
        else:
            text = canonical_text(value)
            shown = key.removeprefix(".").removeprefix("properties.")
            yield shown, pointer, str(value) if text is None else text


def _secretive(line: str) -> Iterator[str]:
    """Yield the keys that look like those of secrets, and have a literal value."""
    for found in _ASSIGNED.finditer(line):
        key, value = re.sub(r"[\"'\s]", "", found["key"]), found["value"].strip()
        given = value in _OPENING or value.strip("\"'{[ \t")
        if given and looks_secret(key) and not has_reference(value):
            yield key


def _endings(key: str) -> Iterator[str]:
    """Yield a key, and its last parts: lines of tables have only those."""
    parts = key.lower().split(".")
    return (".".join(parts[at:]) for at in range(len(parts)))
