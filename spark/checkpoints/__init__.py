"""Checkpoints of Spark queries and pipelines. Does not import Spark."""

from streamfactory.spark.checkpoints.outlook import (
    Moved,
    NextBatch,
    PartitionLag,
    differences,
    measure_lag,
    next_batch,
)
from streamfactory.spark.checkpoints.pipeline import PipelineCheckpoint
from streamfactory.spark.checkpoints.places import Place
from streamfactory.spark.checkpoints.reading import (
    Batch,
    QueryCheckpoint,
    is_query_checkpoint,
    read_query,
)
from streamfactory.spark.checkpoints.record import Record, read_record
from streamfactory.spark.checkpoints.resolving import (
    Memory,
    Reset,
    Resolution,
    resolve,
)

__all__ = [
    "Batch",
    "Memory",
    "Moved",
    "NextBatch",
    "PartitionLag",
    "PipelineCheckpoint",
    "Place",
    "QueryCheckpoint",
    "Record",
    "Reset",
    "Resolution",
    "differences",
    "is_query_checkpoint",
    "measure_lag",
    "next_batch",
    "read_query",
    "read_record",
    "resolve",
]
