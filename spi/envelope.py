"""The schema of undecoded messages: the columns of Spark's Kafka source.

=================  ==========================================  ========
column             type                                        nullable
=================  ==========================================  ========
``key``            binary                                      yes
``value``          binary; null is a tombstone (rule R9)       yes
``topic``          string                                      no
``partition``      int32                                       no
``offset``         int64                                       no
``timestamp``      timestamp[us, UTC]                          yes
``timestampType``  int32: 0 created, 1 appended, -1 unknown    no
``headers``        list<struct<key: string, value: binary>>    yes
=================  ==========================================  ========
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

TIMESTAMP_CREATED: Final = 0
TIMESTAMP_APPENDED: Final = 1
TIMESTAMP_UNKNOWN: Final = -1


@cache
def headers_type() -> pa.DataType:
    """The Arrow type of the ``headers`` column: headers repeat and keep their order."""
    import pyarrow as pa

    header = pa.struct(
        [pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]
    )
    return pa.list_(header)


@cache
def envelope_schema() -> pa.Schema:
    """The envelope, as an Arrow schema."""
    import pyarrow as pa

    return pa.schema(
        [
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("topic", pa.string(), nullable=False),
            pa.field("partition", pa.int32(), nullable=False),
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("timestamp", pa.timestamp("us", tz="UTC")),
            pa.field("timestampType", pa.int32(), nullable=False),
            pa.field("headers", headers_type()),
        ]
    )
