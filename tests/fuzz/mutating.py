"""Damage: of bytes, of IPC messages, of text, of JSON. All of it by a seeded chance."""

from __future__ import annotations

import json
import re
import struct
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from tests.fuzz import ipc

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from tests.fuzz.corpus import Seed
    from tests.fuzz.ipc import Message

_EDGES: Final = (
    *(0, 1, -1, 2, 7, 8, 9, 63, 64, 127, 128, 255, 256, -128),
    *(2**15 - 1, -(2**15), 2**16, 2**20, 2**24 + 1, 2**28, 2**29, 2**30),
    *(2**31 - 1, -(2**31), 2**31, 2**32 - 1, 2**32, 2**40, 2**53, 2**62),
    *(2**63 - 1, -(2**63), 536_870_915),
)
SOUND: Final = 0.2
"""How many inputs have no damage: others differ from them in one place."""
_WIDTHS: Final = (1, 2, 4, 4, 4, 8, 8)


def number(chance: random.Random, width: int, near: int = 0) -> bytes:
    """A number that is likely to be one too many, in so many bytes.

    Args:
        chance: Chooses.
        width: Bytes.
        near: What it may be close to: a length, or the number that stands there.
    """
    if chance.random() < 0.4:
        value = near + chance.choice((-8, -2, -1, 0, 1, 2, 8, 64))
    elif chance.random() < 0.2:
        value = chance.getrandbits(8 * width)
    else:
        value = chance.choice(_EDGES)
    return (value % (1 << 8 * width)).to_bytes(width, "little")


# --- bytes --------------------------------------------------------------------------


def bytes_of(data: bytes, chance: random.Random, other: bytes = b"") -> bytes:
    """Some bytes changed, left out, repeated, or put in from elsewhere."""
    found = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 6))):
        if not found:
            break
        _damage(found, chance, other)
    return bytes(found)


def _damage(found: bytearray, chance: random.Random, other: bytes) -> None:
    how, at = chance.randrange(10), chance.randrange(len(found))
    span = min(len(found) - at, chance.choice((1, 2, 4, 8, 16, 64, 256)))
    if how <= 1:
        found[at] ^= 1 << chance.randrange(8)
    elif how == 2:
        found[at] = chance.randrange(256)
    elif how <= 5:
        width = chance.choice(_WIDTHS)
        at -= at % width
        here = int.from_bytes(found[at : at + width], "little")
        found[at : at + width] = number(chance, width, here)
    elif how == 6:
        del found[at : None if chance.random() < 0.5 else at + span]
    elif how == 7:
        found[at:at] = found[at : at + span] * chance.choice((1, 1, 2, 50))
    elif how == 8:
        found[at : at + span] = chance.choice((b"\0", b"\xff")) * span
    else:
        piece = other or bytes(found)
        begin = chance.randrange(len(piece))
        found[at : at + span] = piece[begin : begin + span]


# --- Arrow --------------------------------------------------------------------------


def stream_of(seed: Seed, chance: random.Random, others: Sequence[Seed]) -> bytes:
    """A stream with damage of any kind; some are sound, of every type."""
    if chance.random() < SOUND:
        return seed.stream
    how = chance.randrange(5)
    if seed.amplifies and chance.random() < 0.5:
        return seed.stream
    if how == 0:
        return bytes_of(seed.stream, chance, chance.choice(others).stream)
    if how == 1:
        return headers_of(seed, chance)
    if how == 2:
        return order_of(seed, chance, others)
    return bodies_of(seed, chance)


def bodies_of(seed: Seed, chance: random.Random) -> bytes:
    """A stream whose headers are sound; bodies are not."""
    parts = ipc.messages(seed.stream)
    schema = pa.ipc.read_schema(pa.py_buffer(seed.schema))
    kinds = ipc.roles(schema)
    bodies = [part for part in parts if part.buffers]
    # Batches are alike: the same damage in all of them survives their joining.
    if bodies and chance.random() < 0.3:
        state = chance.getstate()
        for part in bodies:
            chance.setstate(state)
            _damage_body(part, kinds, chance)
    else:
        for _ in range(chance.choice((1, 1, 2))):
            if bodies:
                _damage_body(chance.choice(bodies), kinds, chance)
    return _stream(parts)


def headers_of(seed: Seed, chance: random.Random) -> bytes:
    """A stream with damage in the headers of its messages."""
    parts = ipc.messages(seed.stream)
    for _ in range(chance.choice((1, 1, 2))):
        _damage_header(chance.choice(parts), chance)
    return _stream(parts)


def order_of(seed: Seed, chance: random.Random, others: Sequence[Seed]) -> bytes:
    """A stream whose messages are missing, repeated, or those of another stream."""
    parts = ipc.messages(seed.stream)
    at = chance.randrange(len(parts))
    how = chance.randrange(4)
    if how == 0:
        del parts[at]
    elif how == 1:
        parts.insert(chance.randrange(len(parts) + 1), parts[at])
    elif how == 2:
        chance.shuffle(parts)
    else:
        foreign = ipc.messages(chance.choice(others).stream)
        parts[1:] = foreign[1:]
    return _stream(parts)


def random_of(seed: Seed, chance: random.Random, others: Sequence[Seed]) -> bytes:
    """A random-access file with damage of any kind; some are sound."""
    if chance.random() < SOUND:
        return seed.random
    other = chance.choice(others).random
    if seed.amplifies and chance.random() < 0.5:
        return seed.random
    if chance.random() < 0.4:
        return bytes_of(seed.random, chance, other)
    # Where no length changes, the footer goes on naming the right places.
    damaged = bodies_of(seed, chance) if chance.random() < 0.6 else None
    damaged = damaged or headers_of(seed, chance)
    begin = 8
    end = begin + len(seed.stream) - len(ipc.END)
    if len(damaged) == len(seed.stream) and seed.random[begin:end] == seed.stream[:-8]:
        return seed.random[:begin] + damaged[:-8] + seed.random[end:]
    return bytes_of(seed.random, chance, other)


def _stream(parts: Sequence[Message]) -> bytes:
    return b"".join(part.assemble() for part in parts) + ipc.END


def _damage_body(
    part: Message, kinds: Sequence[tuple[str, int]], chance: random.Random
) -> None:
    if chance.random() < 0.15:
        _damage_node(part, chance)
        return
    # The buffers of a dictionary have no names here; those of views follow the last.
    named = part.kind == ipc.ROWS and len(kinds) <= len(part.buffers)
    # What points elsewhere is worth more than what is a value.
    order = [i for i, b in enumerate(part.buffers) if b]
    pointing = [
        i
        for i in order
        if named and i < len(kinds) and kinds[i][0] not in {"values", "data"}
    ]
    if pointing and chance.random() < 0.7:
        order = pointing
    if not order:
        _damage_node(part, chance)
        return
    at = chance.choice(order)
    kind, width = kinds[at] if named and at < len(kinds) else ("data", 4)
    _damage_buffer(part.buffers[at], kind, width, chance)


def _damage_buffer(
    buffer: bytearray, kind: str, width: int, chance: random.Random
) -> None:
    how = chance.randrange(12)
    count = max(1, len(buffer) // width)
    if how == 0:
        del buffer[chance.randrange(len(buffer) + 1) :]
    elif how == 1:
        buffer += number(chance, width) * chance.choice((1, 4, 1000))
    elif how == 2:
        buffer[:] = number(chance, width, count) * count
    elif how == 3 and kind == "views":
        size, index, start = (number(chance, 4, 20) for _ in range(3))
        at = 16 * chance.randrange(max(1, len(buffer) // 16))
        buffer[at : at + 16] = size + b"a te" + index + start
    else:
        for _ in range(chance.choice((1, 1, 2))):
            at = width * chance.choice((0, 1, count - 1, chance.randrange(count)))
            here = int.from_bytes(buffer[at : at + width], "little")
            near = chance.choice((here, count, len(buffer)))
            buffer[at : at + width] = number(chance, width, near)


def _damage_node(part: Message, chance: random.Random) -> None:
    places = [at + 8 * half for at in part.nodes for half in (0, 1)]
    if part.length is not None:
        places.append(part.length)
    if places:
        at = chance.choice(places)
        (here,) = struct.unpack_from("<q", part.head, at)
        part.head[at : at + 8] = number(chance, 8, here)


def _damage_header(part: Message, chance: random.Random) -> None:
    how = chance.randrange(4)
    part.patched = True
    if how == 0 and part.places:
        at = chance.choice(part.places) + chance.choice((0, 8))
        (here,) = struct.unpack_from("<q", part.head, at)
        part.head[at : at + 8] = number(chance, 8, here)
    elif how == 1:
        _damage_node(part, chance)
    else:
        width = chance.choice((1, 2, 4, 4, 8))
        at = chance.randrange(max(1, len(part.head) // width)) * width
        here = int.from_bytes(part.head[at : at + width], "little")
        part.head[at : at + width] = number(chance, width, here)


# --- text ---------------------------------------------------------------------------

_TOKENS: Final = (
    *("null", "true", "NaN", "1e999", "-0", "0", "1", "-1", "{}", "[]", '""', '"'),
    *(
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\\",
        "\\u0000",
        "\\ud800",
        "\0",
        "\n",
        "\r\n",
        "=",
    ),
    *("9223372036854775807", "9223372036854775808", "1" * 400, "1e-400", "0x10"),
    *(
        "18446744073709551616",
        "${env:HOME}",
        "${file:/etc/hostname}",
        "${env:",
        "../..",
    ),
    *("\ufeff", "\u202e", "é", "#", "'''", "a.b.c", "1970-01-01T00:00:00Z", "inf"),
    *("9999-12-31T23:59:60Z", "-2147483649", "[[", "]]", "\t", " ", "/dev/null"),
)
_TOKEN: Final = re.compile(rb"[A-Za-z0-9_.+-]+|\"|[^\sA-Za-z0-9]|\s+")


_LONGEST: Final = 1 << 20
"""Bytes of a word that is repeated: inputs are to stay small."""


def text_of(data: bytes, chance: random.Random, other: bytes = b"") -> bytes:
    """Text with words left out, repeated, replaced, and nested."""
    found = data
    for _ in range(chance.choice((1, 1, 2, 4))):
        how = chance.randrange(8)
        words = _TOKEN.findall(found)
        if how <= 1 or not words:
            found = bytes_of(found, chance, other)
            continue
        at = chance.randrange(len(words))
        token = chance.choice(_TOKENS).encode("utf-8", "surrogatepass")
        if how == 2:
            del words[at]
        elif how <= 4:
            words[at] = token
        elif how == 5:
            words.insert(at, token)
        elif how == 6:
            words.insert(at, words[chance.randrange(len(words))])
        else:
            times = chance.choice((2, 100, 2000))
            words[at] *= min(times, 1 + _LONGEST // len(words[at]))
        found = b"".join(words)
    return found


_VALUES: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, 1, -1, 0.5, 1e300, "", "a", "0", "-1", "../x", "\0"),
    *(2**31, 2**53, 2**63 - 1, 2**63, -(2**63), 10**400, "x" * 5000, [], {}, [[]]),
    *({"a": 1}, [None], {"": None}, "9" * 30, "\ud800", 300_000_000),
)


def json_of(plain: Any, chance: random.Random) -> str:
    """JSON of a value, of which some parts were replaced, left out or repeated."""
    found = json.loads(json.dumps(plain))
    for _ in range(chance.choice((1, 1, 2, 3))):
        # What was repeated is no longer the same object: nothing holds itself.
        found = json.loads(json.dumps(_damaged_value(found, chance)))
    return json.dumps(found)


def varied_json(plain: Any, chance: random.Random, *, values: bool = True) -> str:
    """JSON as another program would write it: order, spaces, escapes, values.

    Args:
        plain: What it says.
        chance: Chooses.
        values: Whether numbers and booleans are others, of the same kind.
    """
    found = _varied(plain, chance) if values else plain
    if isinstance(found, dict):
        items = list(found.items())
        chance.shuffle(items)
        found = dict(items)
    return json.dumps(
        found,
        ensure_ascii=chance.random() < 0.5,
        separators=chance.choice(((",", ":"), (", ", ": "), (" ,\n", "\t: "))),
    )


def _varied(value: Any, chance: random.Random) -> Any:
    if isinstance(value, bool):
        return chance.random() < 0.5
    if isinstance(value, int):
        return chance.choice((value, 0, 1, -1, chance.getrandbits(31), 2**31 - 1))
    if isinstance(value, float):
        return chance.choice((value, 0.0, -1.5, chance.random(), 1e100))
    if isinstance(value, dict):
        return {key: _varied(each, chance) for key, each in value.items()}
    if isinstance(value, list):
        many = value * chance.choice((1, 1, 2, 5))
        return [_varied(each, chance) for each in many]
    return value


def _damaged_value(value: Any, chance: random.Random) -> Any:
    keys = list(value) if isinstance(value, dict) else []
    if isinstance(value, list):
        keys = list(range(len(value)))
    if not keys or chance.random() < 0.1:
        return _other(value, chance)
    key, how = chance.choice(keys), chance.randrange(10)
    if how == 0:
        del value[key]
    elif how == 1 and isinstance(value, dict):
        value[chance.choice(("", "x", "format", str(2**40)))] = value[key]
    elif how == 1:
        value += [value[key]] * chance.choice((1, 100))
    else:
        value[key] = _damaged_value(value[key], chance)
    return value


def _other(value: Any, chance: random.Random) -> Any:
    if isinstance(value, int) and chance.random() < 0.5:
        return value + chance.choice((-1, 1, -1000, 1000, 2**31, 2**63))
    if chance.random() < 0.03:
        deep: Any = value
        for _ in range(chance.choice((50, 400))):
            deep = [deep] if chance.random() < 0.5 else {"a": deep}
        return deep
    return json.loads(json.dumps(chance.choice(_VALUES)))
