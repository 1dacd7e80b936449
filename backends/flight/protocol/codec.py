"""Strict JSON for the messages of the protocol: declared as dataclasses, checked whole.

A message is one JSON object with its protocol version in ``v``. Members that are
missing, unknown, of another type or out of range are refused before anything is made
of them, so that the code behind never meets a value that its type does not allow.
"""

from __future__ import annotations

import json
import types
import typing
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final, NewType, TypeVar

from streamfactory.spi import FormatRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

VERSION: Final = 1
"""Protocol version of all messages; no other one is read."""
MOST_BYTES: Final = 16 << 20
"""Maximum size of a message. A commit names every staged file of an epoch."""
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
_DECODER: Final = json.JSONDecoder()
# `json.dumps` and `json.loads` would make or look for one with each message.
_LONGEST_TEXT: Final = 4 << 20
_LARGEST: Final = 2**63 - 1
_LARGEST_DIGEST: Final = 2**128 - 1
_LARGEST_COUNT: Final = 2**62
_LONGEST_ID: Final = 1024

T = TypeVar("T")
U = TypeVar("U")

Digest = NewType("Digest", int)
"""A member of 128 bits, without sign."""


Count = Annotated[int, "count"]
"""A member from 0 to 2**62: what a log can store as a number."""
Id = Annotated[str, "id"]
"""A member of at most 1,024 characters: a server remembers it."""


class _Refused(ValueError):
    """What is wrong, without the name of the message."""


def encode(message: Any) -> bytes:
    """The bytes of a message: a dataclass of `messages`."""
    return _ENCODER.encode({"v": VERSION, **_plain(message)}).encode()


def decode(data: bytes | memoryview, kind: type[T]) -> T:
    """A message of the given dataclass.

    Raises:
        FormatRefused: permanent; it is no such message, or of another version.
    """
    return _decoded(kind, _parsed(data, kind))


def decode_either(
    data: bytes | memoryview, kind: type[T], other: type[U], member: str
) -> T | U:
    """A message of one of two dataclasses: of ``other`` where it has ``member``.

    Raises:
        FormatRefused: permanent; it is neither, or of another version.
    """
    plain = _parsed(data, kind)
    if isinstance(plain, dict) and member in plain:
        return _decoded(other, plain)
    return _decoded(kind, plain)


def _parsed(data: bytes | memoryview, kind: type) -> Any:
    """The JSON value; None if it is not JSON."""
    if len(data) > MOST_BYTES:
        msg = f"a {kind.__name__} message has {len(data)} bytes; "
        msg += f"{MOST_BYTES} are allowed"
        raise FormatRefused(msg, remedy="divide it into smaller messages")
    try:
        return _DECODER.decode(bytes(data).decode())
    except (ValueError, RecursionError):
        return None


def _decoded(kind: type[T], plain: Any) -> T:
    name = kind.__name__
    if not isinstance(plain, dict) or "v" not in plain:
        msg = f"expected a {name} message: a JSON object with its version in 'v'"
        raise FormatRefused(msg, remedy=_members(kind))
    version = plain.pop("v")
    whole = type(version) is int  # true equals 1, and so does 1.0
    if not whole or version != VERSION:
        found = version if whole else type(version).__name__
        msg = f"a {name} message has protocol version {found}; {VERSION} is supported"
        raise FormatRefused(msg, remedy="use the same release on both sides")
    try:
        return _object(kind, plain)
    except _Refused as error:
        msg = f"a {name} message is malformed: {error}"
        raise FormatRefused(msg, remedy=_members(kind)) from None


def _members(kind: type) -> str:
    """The remedy of a malformed message: what it may hold."""
    names = ["v", *(one.name + "?" * _is_optional(one) for one in fields(kind))]
    return f"its members are {', '.join(names)}"


def _is_optional(field: Field[Any]) -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING


def _plain(message: Any) -> dict[str, Any]:
    return {
        name: _value(value)
        for name, default in _defaults(typing.cast("Any", type(message)))
        if (value := getattr(message, name)) != default
    }


@cache
def _defaults(kind: type) -> Sequence[tuple[str, Any]]:
    return [(field.name, field.default) for field in fields(kind)]


def _value(value: Any) -> Any:
    if isinstance(value, str | int | None):
        return value
    if isinstance(value, list | tuple):
        return [_value(one) for one in value]
    if isinstance(value, dict):
        return {str(key): _value(one) for key, one in value.items()}
    return _plain(value) if is_dataclass(value) else value


def _object(kind: type[T], plain: Any) -> T:
    if not isinstance(plain, dict):
        msg = f"expected an object, found {type(plain).__name__}"
        raise _Refused(msg)
    readers = _readers(typing.cast("Any", kind))
    if unknown := plain.keys() - readers.keys():
        msg = f"unknown member {min(unknown)[:64]!r}"
        raise _Refused(msg)
    found: dict[str, Any] = {}
    for name, (field, read) in readers.items():
        if name in plain:
            try:
                found[name] = read(plain[name])
            except _Refused as error:
                msg = f"{name}: {error}"
                raise _Refused(msg) from None
        elif not _is_optional(field):
            msg = f"member {name!r} is missing"
            raise _Refused(msg)
    return kind(**found)


@cache
def _readers(kind: type) -> Mapping[str, tuple[Field[Any], Callable[[Any], Any]]]:
    hints = typing.get_type_hints(kind, include_extras=True)
    return {field.name: (field, _reader(hints[field.name])) for field in fields(kind)}


def _reader(hint: Any) -> Callable[[Any], Any]:
    """The function that checks a value of a type."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):  # X | None
        inner = _reader(arguments[0])
        return lambda value: None if value is None else inner(value)
    if origin is tuple:  # tuple[X, ...]
        inner = _reader(arguments[0])
        return lambda value: tuple(inner(one) for one in _checked(value, list))
    if origin is dict:
        key, inner = arguments[0], _reader(arguments[1])
        return lambda value: {
            _key(name, key): inner(one) for name, one in _checked(value, dict).items()
        }
    if hint is Any:
        return lambda value: value
    if is_dataclass(hint):
        return lambda value: _object(typing.cast("type", hint), value)
    readers: dict[Any, Callable[[Any], Any]] = {
        int: lambda value: _integer(value, -_LARGEST, _LARGEST),
        Digest: lambda value: _integer(value, 0, _LARGEST_DIGEST),
        Count: lambda value: _integer(value, 0, _LARGEST_COUNT),
        str: _text,
        Id: lambda value: _text(value, _LONGEST_ID),
        bool: lambda value: _checked(value, bool),
    }
    return readers[hint]


def _key(name: str, kind: type) -> Any:
    if kind is str:
        return _text(name)
    if not name.isascii() or not name.isdecimal() or len(name) > 18:
        msg = f"expected numbers as keys, found {name[:64]!r}"
        raise _Refused(msg)
    return int(name)


def _integer(value: Any, least: int, most: int) -> int:
    number: int = _checked(value, int)
    if isinstance(value, bool) or not least <= number <= most:
        msg = f"expected an integer from {least} to {most}"
        raise _Refused(msg)
    return number


def _text(value: Any, longest: int = _LONGEST_TEXT) -> str:
    text: str = _checked(value, str)
    if len(text) > longest:
        msg = f"text of {len(text)} characters; {longest} are allowed"
        raise _Refused(msg)
    try:
        text.encode()
    except UnicodeEncodeError:  # JSON can escape half of a pair
        msg = "text that is not Unicode"
        raise _Refused(msg) from None
    return text


def _checked(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        msg = f"expected {kind.__name__}, found {type(value).__name__}"
        raise _Refused(msg)
    return value
