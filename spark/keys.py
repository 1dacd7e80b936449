"""Routes rows by key in Spark: an expression for the partition of each row.

It calls the router of the sink in Python, so that both sinks agree. Only the key passes
through Python.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import functions as F  # noqa: N812 - as Spark's documentation has it

from streamfactory.conversion.conform import conform, empty_rows
from streamfactory.spark.versions import ARROW_FUNCTIONS
from streamfactory.spi import Unsupported
from streamfactory.wiring.writing.routing import ROUTING, Router, unpack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column

KEY: Final = "_key"


@dataclass(frozen=True, slots=True)
class KeyRouter:
    """Returns the partition of rows by their key, as sinks in Python do (rule W8).

    Sent to tasks.
    """

    columns: tuple[str, ...]
    """Those of the key; none if the rows have ``_key``."""
    schema: pa.Schema
    """Of these columns, as the topic has them."""
    partitions: int

    def __call__(self, keys: pa.Array) -> pa.Array:
        """The partition of each row.

        Args:
            keys: Structs of the columns of the key.

        Raises:
            SchemaMismatch: permanent; a column cannot be a key.
        """
        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        parcel = unpack(pa.RecordBatch.from_struct_array(keys), ROUTING)
        parcel = parcel._replace(rows=conform(parcel.rows, self.schema))
        router = Router(lambda _: self.partitions, task, self.columns)
        return router.partitions(parcel, len(keys))


def key_partition(
    given: dict[str, Column], key: pa.Field | None, router: KeyRouter
) -> Column:
    """Return the partition of a row, as a column.

    Args:
        given: The columns of the key by name.
        key: ``_key``, if it is the key.
        router: Of the rows.

    Raises:
        Unsupported: misuse; PySpark is older than 4.1.
        SchemaMismatch: permanent; a column cannot be a key.
    """
    if not ARROW_FUNCTIONS:
        msg = "rows with keys go to the partition that Kafka's hash of the key names, "
        msg += "which takes a function of Arrow: PySpark has them since 4.1"
        raise Unsupported(msg, remedy='write it with format("streamfactory")')
    from pyspark.sql.pandas.functions import arrow_udf

    # Refuses what cannot be a key before a task runs.
    fields = [key] if key is not None else router.schema
    router(empty_rows(pa.schema(fields)).to_struct_array())

    def route(keys: pa.Array) -> pa.Array:
        return router(keys)

    create: Any = arrow_udf  # its types require the deprecated third argument
    function = create(route, "int")
    columns: Sequence[Column] = [c.alias(name) for name, c in given.items()]
    found: Column = function(F.struct(*columns))
    return found
