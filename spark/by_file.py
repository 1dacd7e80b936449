"""Values that all rows of a file have, as expressions of the file's name."""

from __future__ import annotations

import json
import re
import zlib
from typing import TYPE_CHECKING, Any, Final, final

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - as Spark's documentation has it

from streamfactory.spark.types import spark_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import Column, SparkSession

    from streamfactory.wiring.microbatch.stored import StoredFile

_ONE_MAP: Final = 16
"""Files whose values are looked up in one map; more are looked up by a checksum of
their names first."""
_MAPS: Final = 256
_PLAIN: Final = re.compile(r"[\w.=-]+", re.ASCII)
"""Names that Spark's metadata does not encode."""
_types: Final = pa.types


@final
class FileValues:
    """Values by file.

    Args:
        session: Reads the files.
        files: Not empty.
    """

    def __init__(self, session: SparkSession, files: Sequence[StoredFile]) -> None:
        self._files = files
        names = [file.path.rpartition("/")[2] for file in files]
        if len({*names}) == len(names) and all(map(_PLAIN.fullmatch, names)):
            self._column, self._names = F.col("_metadata.file_name"), names
        else:
            self._column = F.col("_metadata.file_path")
            self._names = [_uri(session, file.path) for file in files]

    def number(self, of: Callable[[StoredFile], int]) -> Column:
        """A whole number of each file."""
        return self._values([of(file) for file in self._files], "bigint")

    def constant(self, name: str) -> Column:
        """The value of a column that no file has.

        Args:
            name: A key of `StoredFile.constants` of all files.
        """
        scalars = [file.constants[name] for file in self._files]
        kind = scalars[0].type
        if _types.is_timestamp(kind):
            micros = pa.timestamp("us", kind.tz)
            found = self._values([one.cast(micros).value for one in scalars], "bigint")
            utc = F.timestamp_micros(found)
            return utc if kind.tz else _local(found)
        if _types.is_binary(kind) or _types.is_fixed_size_binary(kind):
            texts = [
                None if one.as_py() is None else one.as_py().hex() for one in scalars
            ]
            return F.unhex(self._values(texts, "string"))
        texts = [_text(one.as_py()) for one in scalars]
        (field,) = spark_schema(pa.schema([(name, kind)]))
        return self._values(texts, "string").cast(field.dataType)

    def _values(self, values: Sequence[Any], kind: str) -> Column:
        if len({*values}) == 1:
            return F.lit(values[0]).cast(kind)
        named = dict(zip(self._names, values, strict=True))
        if len(named) <= _ONE_MAP:
            return _map(named, kind)[self._column]
        # A constant map is searched one name after the other.
        parts: list[dict[str, Any]] = [{} for _ in range(_MAPS)]
        for name, value in named.items():
            parts[zlib.crc32(name.encode()) % _MAPS][name] = value
        number = F.crc32(self._column.cast("binary")) % _MAPS
        maps = F.array(*(_map(part, kind) for part in parts))
        return maps[number.cast("int")][self._column]


def _map(values: Mapping[str, Any], kind: str) -> Column:
    """A constant map."""
    return F.map_from_arrays(_array(values, "string"), _array(values.values(), kind))


def _array(values: Iterable[Any], kind: str) -> Column:
    return F.from_json(F.lit(json.dumps([*values])), f"array<{kind}>")


def _local(micros: Column) -> Column:
    """A timestamp without a time zone, of microseconds since the epoch."""
    epoch = F.lit("1970-01-01 00:00:00").cast("timestamp_ntz")
    return epoch + F.make_dt_interval(secs=(micros / 1_000_000).cast("decimal(18,6)"))


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _uri(session: SparkSession, path: str) -> str:
    """A path as Spark's metadata has it."""
    java: Any = session._jvm
    return f"file:{java.org.apache.hadoop.fs.Path(path).toUri().getRawPath()}"
