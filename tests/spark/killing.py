"""A sink whose processes kill themselves between two steps, a given number of times.

Workers get these classes by value: they need not find this module.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType

STEPS: Final = ("before-write", "after-stage", "before-commit", "after-commit")
"""Of an epoch; the first two of a task, the others of the driver."""


class Faults:
    """Kills that are ordered, as files in a folder, each of which is used once."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def order(self, step: str, passes: int = 0, group: int = 0) -> None:
        """Kill who comes to a step, after so many have passed it.

        Args:
            step: One of `STEPS`.
            passes: How many are let through.
            group: A process group to kill; 0 is the process alone.
        """
        Path(self.folder, step).write_text(f"{passes} {group}")

    @property
    def left(self) -> list[str]:
        """Steps whose kills were not needed."""
        return sorted(path.name for path in Path(self.folder).iterdir())

    def cancel(self) -> None:
        """Kill nobody any more."""
        for step in self.left:
            Path(self.folder, step).unlink()

    def at(self, step: str) -> None:
        """Be killed here, if that was ordered."""
        order = Path(self.folder, step)
        try:
            passes, group = map(int, order.read_text().split())
            if passes:
                order.write_text(f"{passes - 1} {group}")
                return
            order.unlink()
        except (FileNotFoundError, ValueError):
            return  # another task was first
        if group:
            os.killpg(group, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)


def register_dying(spark: SparkSession, faults: Faults) -> None:
    """Make ``format("dying")`` known: ours, but for the kills."""
    import tests.spark.killing as here
    from pyspark import cloudpickle

    from streamfactory.spark.sink import MicroBatchWriter
    from streamfactory.spark.source import StreamFactorySource

    class DyingWriter(MicroBatchWriter):
        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            faults.at("before-write")
            message = super().write(iterator)
            faults.at("after-stage")
            return message

        def commit(
            self,
            messages: Sequence[WriterCommitMessage | None],
            batchId: int,  # noqa: N803 - Spark's name
        ) -> None:
            faults.at("before-commit")
            super().commit(messages, batchId)
            faults.at("after-commit")

    class DyingSource(StreamFactorySource):
        @classmethod
        def name(cls) -> str:
            return "dying"

        def streamWriter(self, schema: StructType, overwrite: bool) -> MicroBatchWriter:
            super().streamWriter(schema, overwrite)
            return DyingWriter(self._config, schema, overwrite=overwrite)

    cloudpickle.register_pickle_by_value(here)  # type: ignore[no-untyped-call]
    spark.dataSource.register(DyingSource)
