"""Micro-batches over any stream: what Spark's driver and tasks need, without Spark."""

from streamfactory.wiring.microbatch.offsets import BatchOffset
from streamfactory.wiring.microbatch.planner import Planner
from streamfactory.wiring.microbatch.ranges import Range, read_range, split

__all__ = ["BatchOffset", "Planner", "Range", "read_range", "split"]
