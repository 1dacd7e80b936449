"""Declarative decoding of untrusted plain values: checks types, ranges and names.

Records, snapshots, generation files and payloads of commit messages are plain values
(from JSON, or pickled) of other programs. A decoder is a function that returns the
decoded value or raises `InvalidValue`.
"""

from __future__ import annotations

import binascii
from typing import TYPE_CHECKING, Any, Final

from streamfactory.spi import CorruptData

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterable, Mapping

    from streamfactory.spi import CommitMessage

    Decoder = Callable[[Any], Any]

LARGEST: Final = 2**62
"""Default maximum of numbers: the sum of two fits in 64 bits."""
_SHOWN: Final = 40
"""Maximum characters of a value in messages."""


class InvalidValue(Exception):
    """A value that the format does not allow; raised within the log only.

    Args:
        why: The cause, as the end of a sentence that begins with the value's name.
        path: The path of the value, from the outermost key.
    """

    def __init__(self, why: str, *path: str | int) -> None:
        super().__init__(why)
        self.why = why
        self.path = list(path)

    def within(self, key: str | int) -> InvalidValue:
        """Return the same error with ``key`` prepended to its path."""
        self.path.insert(0, key)
        return self

    def __str__(self) -> str:
        place = "".join(
            f"[{key}]" if isinstance(key, int) else f".{key}" for key in self.path
        )
        return f"{place.removeprefix('.') or 'the value'} {self.why}"


def whole(least: int = 0, most: int = LARGEST) -> Decoder:
    """A whole number; both bounds are inclusive."""

    def decode(value: Any) -> int:
        if type(value) is not int:
            raise _wrong(value, "a whole number")
        if not least <= value <= most:
            raise _wrong(value, f"between {least} and {most}")
        return value

    return decode


def wholes(least: int = 0, most: int = LARGEST, *, fewest: int = 0) -> Decoder:
    """A list of at least ``fewest`` whole numbers; checked all at once."""

    def decode(value: Any) -> list[int]:
        if type(value) is not list:
            raise _wrong(value, "a list")
        if len(value) < fewest:
            raise _wrong(value, f"a list of at least {fewest}")
        if value and set(map(type, value)) != {int}:
            raise _wrong(value, "a list of whole numbers")
        if value and not (least <= min(value) and max(value) <= most):
            raise _wrong(value, f"a list of numbers between {least} and {most}")
        return value

    return decode


def text(value: Any) -> str:
    """Text that can be encoded again."""
    if type(value) is not str:
        raise _wrong(value, "text")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _wrong(value, "text") from None
    return value


def encoded(value: Any) -> bytes:
    """The bytes of base64 text (RFC 4648), which has nothing but its alphabet."""
    if type(value) is not str:
        raise _wrong(value, "base64")
    try:
        return binascii.a2b_base64(value, strict_mode=True)
    except ValueError:
        raise _wrong(value, "base64") from None


def flag(value: Any) -> bool:
    """True or false."""
    if type(value) is not bool:
        raise _wrong(value, "true or false")
    return value


def names(pattern: re.Pattern[str]) -> Decoder:
    """A list of names that the format defines; checked all at once."""

    def decode(value: Any) -> list[str]:
        if type(value) is not list or not set(map(type, value)) <= {str}:
            raise _wrong(value, "a list of names")
        if not all(map(pattern.fullmatch, value)):
            raise _wrong(value, f"a list of names of the form {pattern.pattern}")
        return value

    return decode


def named(pattern: re.Pattern[str]) -> Decoder:
    """A name that the format defines."""

    def decode(value: Any) -> str:
        if type(value) is not str or pattern.fullmatch(value) is None:
            raise _wrong(value, f"a name of the form {pattern.pattern}")
        return value

    return decode


def optional(decoder: Decoder) -> Decoder:
    """The same, or None."""
    return lambda value: None if value is None else decoder(value)


def list_of(decoder: Decoder) -> Decoder:
    """A list, each of whose items is decoded."""

    def decode(value: Any) -> list[Any]:
        if type(value) is not list:
            raise _wrong(value, "a list")
        try:
            return [decoder(item) for item in value]
        except InvalidValue as error:
            raise _located(error, enumerate(value), lambda _: decoder) from None

    return decode


def row_of(*decoders: Decoder) -> Decoder:
    """A list of exactly these items."""

    def decode(value: Any) -> list[Any]:
        if type(value) is not list or len(value) != len(decoders):
            raise _wrong(value, f"a list of {len(decoders)}")
        try:
            pairs = zip(decoders, value, strict=True)
            return [decoder(item) for decoder, item in pairs]
        except InvalidValue as error:
            items = enumerate(value)
            raise _located(error, items, decoders.__getitem__) from None

    return decode


def mapping_of(key: Decoder, decoder: Decoder) -> Decoder:
    """An object with any members; names and values are decoded."""

    def decode(value: Any) -> dict[Any, Any]:
        if type(value) is not dict:
            raise _wrong(value, "an object")
        try:
            return {key(member): decoder(item) for member, item in value.items()}
        except InvalidValue as error:
            keys = ((_short(member), member) for member in value)
            items = ((_short(member), item) for member, item in value.items())
            found = _located(error, keys, lambda _: key)
            raise _located(found, items, lambda _: decoder) from None

    return decode


def members_of(
    required: Mapping[str, Decoder], others: Mapping[str, Decoder] | None = None
) -> Decoder:
    """An object with these members and no more; ``others`` may be missing."""
    known = {**required, **(others or {})}
    needed = required.keys()

    def decode(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise _wrong(value, "an object")
        try:
            found = {member: known[member](item) for member, item in value.items()}
        except KeyError:
            member = next(iter(value.keys() - known.keys()))
            msg = "is not a member of the format"
            raise InvalidValue(msg, _short(member)) from None
        except InvalidValue as error:
            raise _located(error, value.items(), known.__getitem__) from None
        if needed - found.keys():
            msg = "is missing"
            raise InvalidValue(msg, min(needed - found.keys()))
        return found

    return decode


def payload_of(message: CommitMessage, decoder: Decoder) -> dict[str, Any]:
    """Decode the payload of a commit message.

    Raises:
        CorruptData: data_loss; it is not that of a writer of this type.
    """
    try:
        found: dict[str, Any] = decoder(message.payload)
    except InvalidValue as error:
        msg = f"the commit message of task {message.context.task}: {error}"
        raise CorruptData(msg, remedy="abort the epoch, and write it again") from None
    return found


def _located(
    error: InvalidValue,
    items: Iterable[tuple[str | int, Any]],
    decoder_of: Callable[[Any], Decoder],
) -> InvalidValue:
    """Return an error with the index of its item.

    The index is computed only for errors, to decode items faster.
    """
    for key, item in items:
        try:
            decoder_of(key)(item)
        except InvalidValue as found:
            return found.within(key)
    return error


def digits(most: int) -> Decoder:
    """Text that is a whole number from 0 to ``most``, as JSON has keys."""

    def decode(value: Any) -> int:
        # Too many digits: converting them would take long.
        plain = type(value) is str and value.isascii() and value.isdigit()
        if not plain or len(value) > len(str(most)) or int(value) > most:
            raise _wrong(value, f"a number up to {most}")
        return int(value)

    return decode


def _wrong(value: Any, wanted: str) -> InvalidValue:
    return InvalidValue(f"is {_short(value)}, expected {wanted}")


def _short(value: Any) -> str:
    """Return a value of any size, shortened for messages."""
    if isinstance(value, (list, dict)):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, int) and abs(value) > LARGEST:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, str):
        return ascii(value[:_SHOWN]) + ("..." if len(value) > _SHOWN else "")
    plain = value is None or isinstance(value, (bool, int, float))
    return repr(value) if plain else f"a {type(value).__name__}"
