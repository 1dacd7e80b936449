"""How the data files of a table are written, by the table's own properties."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from streamfactory.spi import SIZE, ConfigError, Unsupported
from streamfactory.spi.references import has_reference
from streamfactory.tables.options import PROPERTIES, named

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamfactory.spi import StreamConfig

_CODECS: Final = ("none", "snappy", "gzip", "zstd", "lz4", "brotli")
_PLAIN: Final = "uncompressed"


class SortField(NamedTuple):
    """A column by which rows are sorted."""

    column: str
    descending: bool = False


class Form(NamedTuple):
    """How data files are written."""

    codec: str = "snappy"
    """Of Parquet, as Arrow names it."""
    level: int | None = None
    """Of the codec; None means its default."""
    largest: int | None = None
    """Bytes behind which a file ends; None means what is usual here."""
    rows: int = 1 << 20
    """Rows of a row group, at the most."""
    sort: Sequence[SortField] = ()
    """By what the rows of a row group are sorted."""


USUAL: Final = Form()
"""Where a table says nothing."""


class Names(NamedTuple):
    """Names of the properties of a format. None: it has none for that."""

    codec: str
    largest: str
    level: str | None = None
    rows: str | None = None


def form_of(
    properties: Mapping[str, str], names: Names, sort: Sequence[SortField] = ()
) -> Form:
    """How the properties of a table say that its files are written.

    Args:
        properties: Of the table.
        names: Of those that are read.
        sort: By what the table says that rows are sorted.

    Raises:
        Unsupported: misuse; a value is none that is known.
    """
    form = USUAL._replace(sort=tuple(sort))
    given = {key: properties.get(name or "") for key, name in names._asdict().items()}
    codec, level = given["codec"], given["level"]
    if codec is not None:
        codec = codec.strip().lower().replace(_PLAIN, "none")
        if codec not in _CODECS:
            raise _unknown(names.codec, properties, "is none of " + ", ".join(_CODECS))
        form = form._replace(codec=codec)
    if level is not None and form.codec in ("gzip", "zstd", "brotli"):
        least = pa.Codec.minimum_compression_level(form.codec)
        most = pa.Codec.maximum_compression_level(form.codec)
        found = _whole(level)
        if found is None or not least <= found <= most:
            raise _unknown(names.level, properties, f"is not from {least} to {most}")
        form = form._replace(level=found)
    if given["largest"] is not None:
        form = form._replace(largest=_size(names.largest, properties))
    if given["rows"] is not None:
        rows = _whole(given["rows"])
        if rows is None or rows < 1:
            raise _unknown(names.rows, properties, "is no number of rows")
        form = form._replace(rows=rows)
    return form


def properties_of(config: StreamConfig) -> dict[str, str]:
    """The properties of a new table.

    Raises:
        ConfigError: config; they have a reference, whose value the table would show.
    """
    setting = config.settings.get(PROPERTIES)
    if setting is not None and has_reference(setting.text):
        what = f"{PROPERTIES} has a reference, whose value everybody would read"
        raise ConfigError(what, remedy="write the values themselves")
    return dict(map(named, config.get(PROPERTIES) or ()))


def _whole(text: str) -> int | None:
    text = text.strip()
    digits = text.removeprefix("-")
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= 18
    return int(text) if is_number else None


def _size(name: str, properties: Mapping[str, str]) -> int:
    try:
        size = SIZE.parse(properties[name])
    except ValueError:
        size = 0
    if size < 1:
        raise _unknown(name, properties, "is no size")
    return int(size)


def _unknown(name: str | None, properties: Mapping[str, str], why: str) -> Unsupported:
    assert name is not None
    what = f"the table has {name}={properties[name][:40]}, which {why}"
    return Unsupported(what, remedy=f"change the property {name} of the table")
