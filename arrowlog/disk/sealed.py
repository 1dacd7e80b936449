"""Sealed files of the log on disk: a line of JSON, and a line with its checksum.

Records, snapshots and the files of a topic are such files. They are untrusted, as every
program that can write the folder can write them: `seal` and `unseal` know the shape,
and a decoder of the members is given by whoever reads.
"""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any, Final

from streamfactory.arrowlog.decoding import InvalidValue
from streamfactory.arrowlog.disk.storage import LONGEST_READ
from streamfactory.spi import CorruptData, FormatRefused, MisuseError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from streamfactory.arrowlog.decoding import Decoder

SEALED_BYTES: Final = LONGEST_READ
"""Maximum bytes of a record or a snapshot."""
DAMAGED: Final = (
    "restore the file from a backup, and check who can write the folder: only trusted "
    "users should"
)
"""The remedy for files that are not of the format."""


def seal(plain: Mapping[str, Any]) -> bytes:
    """A line of JSON and a line with its CRC-32, in eight hexadecimal digits.

    Raises:
        MisuseError: misuse; it would exceed the maximum size.
    """
    body = json.dumps(plain, separators=(",", ":"), ensure_ascii=False).encode()
    if len(body) > SEALED_BYTES - 10:
        msg = f"the record of this change would have {len(body)} bytes"
        remedy = f"write smaller epochs: a record has at most {SEALED_BYTES} bytes"
        raise MisuseError(msg, remedy=remedy)
    return b"%b\n%08x\n" % (body, zlib.crc32(body))


def is_intact(data: bytes) -> bool:
    """Whether the checksum of a sealed file matches: a crash may have truncated it."""
    body, _, rest = data.partition(b"\n")
    return rest == b"%08x\n" % zlib.crc32(body)


def unseal(
    data: bytes, place: str, known: Collection[int]
) -> tuple[dict[str, Any], int]:
    """The JSON object of `seal`, without its member ``format``, and its format.

    Nothing else of it is checked.

    Args:
        data: Content of the file.
        place: Location of the file, for messages.
        known: Numbers of the formats that the file may have.

    Raises:
        CorruptData: data_loss; the file is truncated, or not an object.
        FormatRefused: permanent; another format, or a later version of this one.
    """
    if not is_intact(data):
        msg = f"{place}: the file is truncated or was changed"
        raise CorruptData(msg, remedy=DAMAGED)
    body = data.partition(b"\n")[0]
    try:
        plain = json.loads(body)
    except (ValueError, RecursionError):
        plain = None
    if not isinstance(plain, dict):
        msg = f"{place}: the file is not a JSON object"
        raise CorruptData(msg, remedy=DAMAGED)
    found = plain.pop("format", None)
    if type(found) is not int:
        msg = f"{place}: the file has no format number"
        raise CorruptData(msg, remedy=DAMAGED)
    if found not in known:
        shown = found if abs(found) < 2**63 else "a number of more than 64 bits"
        numbers = ", ".join(map(str, known))
        msg = (
            f"{place}: the file has format {shown}, but this version supports {numbers}"
        )
        raise FormatRefused(msg, remedy="use a later version of streamfactory")
    return plain, found


def decode_sealed(data: bytes, place: str, decoders: Mapping[int, Decoder]) -> Any:
    """Decode a sealed file.

    Args:
        data: Content of the file.
        place: Location of the file, for messages.
        decoders: By the number of their format.

    Raises:
        CorruptData: data_loss; the file is truncated, or does not conform to the
            format.
        FormatRefused: permanent.
    """
    plain, number = unseal(data, place, decoders)
    try:
        return decoders[number](plain)
    except InvalidValue as error:
        msg = f"{place}: {error}"
        raise CorruptData(msg, remedy=DAMAGED) from None


def decode_version(
    data: bytes, place: str, decoders: Mapping[int, Decoder], version: int
) -> Mapping[str, Any]:
    """Decode the members of a sealed file of a version.

    Args:
        data: Content of the file.
        place: Location of the file, for messages.
        decoders: By the number of their format.
        version: The version in the file's name.

    Raises:
        CorruptData: data_loss; the file is truncated, does not conform to the format,
            or is that of another version.
        FormatRefused: permanent.
    """
    found: Mapping[str, Any] = decode_sealed(data, place, decoders)
    if found["version"] != version:
        msg = f"{place}: the content is that of version {found['version']}"
        raise CorruptData(msg, remedy=DAMAGED)
    return found
