"""Checkpoints of Spark queries and pipelines. Does not import Spark."""

from streamfactory.spark.checkpoints.outlook import (
    Moved,
    NextBatch,
    differences,
    next_batch,
)
from streamfactory.spark.checkpoints.pipeline import Engine, PipelineCheckpoint
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
from streamfactory.spark.checkpoints.rewinding import (
    Rewind,
    Rewound,
    apply_rewind,
    plan_rewind,
)
from streamfactory.spark.checkpoints.written import (
    Ledger,
    SinkCommit,
    ledger_folder,
    plain_counts,
    read_commits,
)

__all__ = [
    "Batch",
    "Engine",
    "Ledger",
    "Memory",
    "Moved",
    "NextBatch",
    "PipelineCheckpoint",
    "Place",
    "QueryCheckpoint",
    "Record",
    "Reset",
    "Resolution",
    "Rewind",
    "Rewound",
    "SinkCommit",
    "apply_rewind",
    "differences",
    "is_query_checkpoint",
    "ledger_folder",
    "next_batch",
    "plain_counts",
    "plan_rewind",
    "read_commits",
    "read_query",
    "read_record",
    "resolve",
]
