"""What writing to a table promises, by its format. Needs no Spark.

A connector that records (writer, epoch) with each commit writes an epoch once. Others
write a repeated epoch again, which the guarantee states.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamfactory.spi import Guarantee, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfactory.spark.pipelines.model import Table

EPOCH_OPTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "delta": ("txnAppId", "txnVersion"),
    "iceberg": (
        "snapshot-property.streamfactory.writer",
        "snapshot-property.streamfactory.epoch",
    ),
}
"""By format: options of a write for the id of the writer, and the epoch. The commit
records both."""


def table_guarantee(table: Table) -> Verdict:
    """What writing to a table promises."""
    options = EPOCH_OPTIONS.get(table.format)
    if options is None:
        reason = f"table {table.name!r}: {table.format} records no epoch, so a batch "
        reason += "that is repeated after a failure is written again"
        return Verdict(Guarantee.AT_LEAST_ONCE, (reason,))
    reason = f"table {table.name!r}: {table.format} records the epoch with each commit "
    reason += f"({', '.join(options)})"
    return Verdict(Guarantee.EXACTLY_ONCE, (reason,))
