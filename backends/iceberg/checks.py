"""Checks of an Iceberg table's metadata, however it was found."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Final

import fastavro
from pyiceberg.exceptions import ValidationError

from streamfactory.spi import FormatRefused
from streamfactory.spi.causes import first_line
from streamfactory.tables import check_avro_file

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

DAMAGE: Final = (
    ValidationError,
    ValueError,
    RecursionError,
    AttributeError,
    KeyError,
    TypeError,
)
"""What parsing of damaged metadata raises: pydantic's errors are many, and each names
the damage."""

_DEFAULTS: Final = ("initial-default", "write-default")
_NUMBER: Final = re.compile(
    r"[+-]?[0-9]{0,76}[.]?[0-9]{0,76}(?:[eE][+-]?[0-9]{1,2})?", re.ASCII
)


_TYPE: Final = re.compile(r"Unsupported field type: ('[^'\n]{1,60}')")
"""In errors of pyiceberg 0.12."""


def refusal_of(error: BaseException) -> str:
    """What is wrong with metadata that was not parsed; continues its name."""
    found = _TYPE.search(str(error))
    if found is not None:
        return f"has a column of the type {found[1]}, which is unsupported"
    return f"is damaged: {first_line(error, 200)}"


def check_version(metadata: TableMetadata) -> None:
    """Refuse tables of format version 1.

    Raises:
        FormatRefused: permanent.
    """
    if metadata.format_version == 1:
        what = "the table has format version 1, which numbers no commits"
        raise FormatRefused(
            what, remedy="upgrade it: set the property format-version=2"
        )


def check_defaults(metadata: object) -> None:
    """Refuse defaults of decimals with exponents or lengths that no decimal has.

    pyiceberg makes an integer of each: of ``1e-1000000000`` one of a billion digits,
    which takes hours that nothing interrupts.

    Args:
        metadata: Of the table, as parsed from JSON.

    Raises:
        ValueError: There is one.
    """
    waiting = [metadata]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            waiting += value.values()
            if str(value.get("type")).startswith("decimal"):
                for default in (value.get(key) for key in _DEFAULTS):
                    if isinstance(default, str) and not _NUMBER.fullmatch(default):
                        msg = f"the default {default[:40]!r} is no decimal"
                        raise ValueError(msg)


def refuse_compressed(path: str) -> None:
    """Refuse metadata that is inflated without a limit.

    Raises:
        FormatRefused: permanent.
    """
    if path.endswith(".gz") or ".gz." in path:
        what = f"{path!r} of the table is compressed"
        raise FormatRefused(what, remedy="set write.metadata.compression-codec=none")


def checked_avro(path: str, whole: bytes, most: int) -> io.BytesIO:
    """A file of Avro for pyiceberg, which is whole.

    Its decoder trusts the lengths in a file: a damaged one ends the process, and a
    truncated one is read as if it had fewer entries. Both decoders inflate blocks
    without a limit.

    Raises:
        FormatRefused: permanent; see `check_avro_file`.
        ValueError: It is damaged.
    """
    check_avro_file(path, whole, most)
    content = io.BytesIO(whole)
    for _ in fastavro.reader(content):
        pass
    content.seek(0)
    return content
