"""Micro-batches over any stream, for Spark's driver and tasks, without Spark."""

from streamfactory.wiring.microbatch.admission import Admission
from streamfactory.wiring.microbatch.modes import check_batch, check_stream
from streamfactory.wiring.microbatch.offsets import BatchOffset
from streamfactory.wiring.microbatch.planner import Planner, check_shared
from streamfactory.wiring.microbatch.ranges import Range, read_range, split

__all__ = [
    "Admission",
    "BatchOffset",
    "Planner",
    "Range",
    "check_batch",
    "check_shared",
    "check_stream",
    "read_range",
    "split",
]
