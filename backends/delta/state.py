"""What the log of a Delta table states of its rows: columns, partitions, the feed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import Schema

from streamfactory.spi import CorruptData, FormatRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

FEED: Final = "delta.enableChangeDataFeed"


class State:
    """The metadata of a table as of a version.

    Args:
        version: For messages.
        metadata: The action ``metaData`` of the log.

    Raises:
        CorruptData: data_loss; the action is damaged.
        FormatRefused: permanent; the table maps its columns.
    """

    def __init__(self, version: int, metadata: Mapping[str, Any]) -> None:
        configuration = metadata.get("configuration") or {}
        partitioned = metadata.get("partitionColumns") or []
        if not isinstance(configuration, dict) or not isinstance(partitioned, list):
            raise _damaged(version, "its metadata cannot be parsed")
        mapping = configuration.get("delta.columnMapping.mode", "none")
        if mapping != "none":
            what = f"the table maps its columns (delta.columnMapping.mode={mapping})"
            raise FormatRefused(what, remedy="copy it into a table without mapping")
        self.feed = str(configuration.get(FEED, "false")).lower() == "true"
        self.schema = _schema(version, metadata.get("schemaString"))
        unknown = [name for name in partitioned if name not in self.schema.names]
        if unknown:
            what = f"partition column {unknown[0]!r} is not in its schema"
            raise _damaged(version, what)
        self.partitioned: list[str] = partitioned

    def constants(
        self, version: int, values: Mapping[str, Any]
    ) -> dict[str, pa.Scalar]:
        """Values of the partition columns of a file.

        Args:
            version: Of the commit, for messages.
            values: As the log has them, or as ``deltalake`` has parsed them.

        Raises:
            CorruptData: data_loss; a value is not of the type of its column.
        """
        found = {}
        for name in self.partitioned:
            kind = self.schema.field(name).type
            try:
                found[name] = _scalar(values.get(name), kind)
            except (pa.ArrowException, TypeError, ValueError) as error:
                what = f"partition column {name!r} has the value "
                what += f"{str(values[name])[:100]!r}, which is no {kind}"
                raise _damaged(version, what) from error
        return found


def _schema(version: int, text: object) -> pa.Schema:
    try:
        return pa.schema(Schema.from_json(text))  # type: ignore[arg-type]
    except (pa.ArrowException, TypeError, ValueError) as error:
        what = f"its schema cannot be parsed: {str(error)[:200]}"
        raise _damaged(version, what) from error


def _scalar(value: Any, kind: pa.DataType) -> pa.Scalar:
    """The value of a partition column; empty text is null, as Delta's protocol has it.

    Times without a zone are UTC.
    """
    if value is None or value == "":
        return pa.scalar(None, kind)
    if not isinstance(value, str):
        return pa.scalar(value, kind)
    text = pa.scalar(value, pa.string())
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        try:
            return pc.assume_timezone(text.cast(pa.timestamp(kind.unit)), kind.tz)
        except pa.ArrowInvalid:  # it names its zone
            return text.cast(kind)
    return text.cast(kind)


def _damaged(version: int, cause: str) -> CorruptData:
    what = f"commit {version} of the table is damaged: {cause}"
    return CorruptData(what, remedy="restore the file of the log from a backup")
