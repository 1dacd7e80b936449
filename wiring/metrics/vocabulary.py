"""The metrics of the framework, declared once: endpoints, kit and docs use these.

Metrics of a server of streams are declared by its backend (`StreamServer.METRICS`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamfactory.spi import Metric, MetricKind

if TYPE_CHECKING:
    from collections.abc import Mapping

_COUNTER, _GAUGE = MetricKind.COUNTER, MetricKind.GAUGE
_PARTITION: Final = ("stream", "topic", "partition")
_STREAM: Final = ("stream",)
_SPOOL: Final = ("stream", "partition")
_PIPELINE: Final = ("pipeline",)
_JOB: Final = ("job",)


def _counter(name: str, doc: str, unit: str, labels: tuple[str, ...]) -> Metric:
    return Metric(name, doc, _COUNTER, unit, labels)


def _gauge(name: str, doc: str, unit: str, labels: tuple[str, ...]) -> Metric:
    return Metric(name, doc, _GAUGE, unit, labels)


PROCESS_STARTED: Final = _gauge(
    "process.started.seconds",
    "When the process began to count, in seconds since 1970-01-01 UTC.",
    "seconds",
    (),
)

# --- reading: one series for each partition ---------------------------------------

READ_ROWS: Final = _counter(
    "read.rows", "Rows that readers returned.", "rows", _PARTITION
)
READ_MESSAGES: Final = _counter(
    "read.messages",
    "Messages received, those included that became no row.",
    "messages",
    _PARTITION,
)
READ_BYTES: Final = _counter(
    "read.bytes",
    "Bytes received, as the source counts them, else as rows are in memory.",
    "bytes",
    _PARTITION,
)
READ_BATCHES: Final = _counter(
    "read.batches", "Batches with rows that readers returned.", "batches", _PARTITION
)
READ_FETCHES: Final = _counter(
    "read.fetches", "Calls of the consumer's fetch.", "fetches", _PARTITION
)
READ_FETCH_SECONDS: Final = _counter(
    "read.fetch.seconds",
    "Time in the consumer's fetch, waits for messages included.",
    "seconds",
    _PARTITION,
)
READ_DECODE_SECONDS: Final = _counter(
    "read.decode.seconds",
    "Time from the consumer's answer to rows of the stream's schema: decoding, "
    "projection and casts.",
    "seconds",
    _PARTITION,
)
READ_RETRIES: Final = _counter(
    "read.retries", "Transient failures of a fetch that were retried.", "", _PARTITION
)
READ_RECREATED: Final = _counter(
    "read.consumers.recreated",
    "Consumers that were recreated, after an error or `idle.timeout.millis`.",
    "",
    _PARTITION,
)
READ_BAD_MESSAGES: Final = _counter(
    "read.bad.messages",
    "Messages that could not be decoded and did not fail the read.",
    "messages",
    _PARTITION,
)
READ_DEAD_LETTERS: Final = _counter(
    "read.dead.letters",
    "Undecodable messages that `copy` and groups pass to `dead.letter.stream`.",
    "",
    _PARTITION,
)
READ_LOSSES: Final = _counter(
    "read.losses",
    "Loss records: ranges of offsets that are missing from the stream.",
    "",
    _PARTITION,
)
READ_LOST_OFFSETS: Final = _counter(
    "read.lost.offsets",
    "Offsets in loss records whose end is known.",
    "offsets",
    _PARTITION,
)
READ_NEXT: Final = _gauge(
    "read.next.offset",
    "Offset of the next message that the reader will fetch.",
    "",
    _PARTITION,
)
READ_LATEST: Final = _gauge(
    "read.latest.offset",
    "Latest offset that the last answers of the source named.",
    "",
    _PARTITION,
)
READ_LAG: Final = _gauge(
    "read.lag.offsets",
    "`read.latest.offset` less `read.next.offset`; of several readers in one process "
    "the largest.",
    "offsets",
    _PARTITION,
)
READ_LAG_SECONDS: Final = _gauge(
    "read.lag.seconds",
    "Age of the lag: time since the source first named a latest offset beyond "
    "`read.next.offset`; 0 without lag.",
    "seconds",
    _PARTITION,
)

READ_WAITING: Final = _gauge(
    "read.waiting.offsets",
    "Offsets that were written and cannot be read yet, behind the first message of an "
    "open transaction, when the partitions were last looked up; absent if there are "
    "none.",
    "offsets",
    _PARTITION,
)

# --- writing: one series for each stream that is a sink -----------------------------

WRITE_ROWS: Final = _counter(
    "write.rows", "Rows passed to the sink's writers.", "rows", _STREAM
)
WRITE_BYTES: Final = _counter(
    "write.bytes",
    "Bytes passed to the sink's writers, as rows are in memory.",
    "bytes",
    _STREAM,
)
WRITE_BATCHES: Final = _counter(
    "write.batches", "Batches passed to the sink's writers.", "batches", _STREAM
)
WRITE_SECONDS: Final = _counter(
    "write.seconds",
    "Time in writers: checks, routing, encoding and the sink's back-pressure.",
    "seconds",
    _STREAM,
)
WRITE_FAILURES: Final = _counter(
    "write.failures", "Writes that failed; their attempt is over.", "", _STREAM
)
WRITE_DRAINED: Final = _counter(
    "write.drained.rows",
    "Rows of epochs that were committed before: read, and not written again.",
    "rows",
    _STREAM,
)
WRITE_DISCARDED: Final = _counter(
    "write.discarded.rows",
    "Rows that do not fit the columns of their topic, dropped by "
    "schema.contract=discard_row.",
    "rows",
    _STREAM,
)
COMMITS: Final = _counter(
    "commit.epochs", "Epochs that a committer made visible.", "epochs", _STREAM
)
COMMITS_REPEATED: Final = _counter(
    "commit.repeated.epochs",
    "Commits without effect: their epoch had been committed before.",
    "epochs",
    _STREAM,
)
COMMITS_FAILED: Final = _counter(
    "commit.failures", "Commits that raised an error.", "", _STREAM
)
COMMIT_SECONDS: Final = _counter(
    "commit.seconds", "Time in commits.", "seconds", _STREAM
)
COMMIT_MISMATCHES: Final = _counter(
    "commit.mismatches",
    "Epochs that were repeated with other rows than were committed.",
    "",
    _STREAM,
)
COMMIT_ABORTS: Final = _counter(
    "commit.aborts", "Epochs that were aborted by a committer.", "", _STREAM
)

# --- spools: one series for each partition that a receiver stores -------------------

SPOOL_ROWS: Final = _counter(
    "spool.rows", "Rows that the receiver stored.", "rows", _SPOOL
)
SPOOL_BYTES: Final = _counter(
    "spool.bytes", "Bytes that the receiver stored.", "bytes", _SPOOL
)
SPOOL_COMMITS: Final = _counter("spool.commits", "Commits of the receiver.", "", _SPOOL)
SPOOL_LOSSES: Final = _counter(
    "spool.losses", "Loss records of the receiver.", "", _SPOOL
)
SPOOL_RELEASED: Final = _counter(
    "spool.released.offsets",
    "Offsets that retention, or the bound of the spool, released.",
    "offsets",
    _SPOOL,
)
SPOOL_BLOCKED: Final = _gauge(
    "spool.blocked",
    "1 while what was received cannot be stored, else 0.",
    "",
    _SPOOL,
)
SPOOL_FAILED: Final = _gauge(
    "spool.failed",
    "1 once the receiver of the partition has ended because of an error, else 0.",
    "",
    _SPOOL,
)
SPOOL_IDLE: Final = _gauge(
    "spool.idle.seconds",
    "Time since the last commit of the receiver; no sample before the first.",
    "seconds",
    _SPOOL,
)
SPOOL_HELD: Final = _gauge(
    "spool.held.bytes",
    "Bytes that the spool holds of the partition, as rows are in memory.",
    "bytes",
    _SPOOL,
)
SPOOL_LIMIT: Final = _gauge(
    "spool.limit.bytes",
    "Bytes that the spool may hold: `spool.full.bytes`; no sample without it.",
    "bytes",
    _SPOOL,
)

# --- pipelines, on the driver: what Spark reports of each batch ----------------------

PIPELINE_RUNNING: Final = _gauge(
    "pipeline.running", "1 while the query of the pipeline runs, else 0.", "", _PIPELINE
)
PIPELINE_ROWS: Final = _counter(
    "pipeline.rows", "Rows that committed batches read.", "rows", _PIPELINE
)
PIPELINE_BATCHES: Final = _counter(
    "pipeline.batches", "Committed batches.", "batches", _PIPELINE
)
PIPELINE_BATCH_SECONDS: Final = _counter(
    "pipeline.batch.seconds", "Duration of committed batches.", "seconds", _PIPELINE
)
PIPELINE_PLAN_SECONDS: Final = _counter(
    "pipeline.plan.seconds",
    "Planning of committed batches: latest offsets, ranges and Spark's query plan.",
    "seconds",
    _PIPELINE,
)
PIPELINE_WRITE_SECONDS: Final = _counter(
    "pipeline.write.seconds",
    "Execution of committed batches: tasks, and the commits of their sinks.",
    "seconds",
    _PIPELINE,
)
PIPELINE_CHECKPOINT_SECONDS: Final = _counter(
    "pipeline.checkpoint.seconds",
    "Writing of Spark's checkpoint: its offset log and commit log.",
    "seconds",
    _PIPELINE,
)
PIPELINE_LATE_ROWS: Final = _counter(
    "pipeline.late.rows",
    "Rows or groups that were dropped because they were later than the watermark.",
    "rows",
    _PIPELINE,
)
PIPELINE_UNMET_ROWS: Final = _counter(
    "pipeline.unmet.rows",
    "Rows of committed batches that did not fulfil an expectation.",
    "rows",
    ("pipeline", "expectation"),
)
PIPELINE_FAILURES: Final = _counter(
    "pipeline.failures", "Ends of the pipeline because of an error.", "", _PIPELINE
)
PIPELINE_WRITTEN_ROWS: Final = _counter(
    "pipeline.written.rows",
    "Rows that committed batches wrote to a sink, by the records of its commits.",
    "rows",
    ("pipeline", "sink"),
)
PIPELINE_WRITTEN_BYTES: Final = _counter(
    "pipeline.written.bytes",
    "Bytes of those rows, as they are in memory.",
    "bytes",
    ("pipeline", "sink"),
)
PIPELINE_DEAD_LETTERS: Final = _counter(
    "pipeline.dead.letters",
    "Undecodable messages that committed batches wrote to the sink of dead letters.",
    "",
    _PIPELINE,
)
PIPELINE_FAILED_ATTEMPTS: Final = _counter(
    "pipeline.failed.attempts",
    "Attempts at committed batches that a sink aborted; those that were killed are not "
    "known.",
    "",
    _PIPELINE,
)
PIPELINE_LAST_TRIGGER: Final = _gauge(
    "pipeline.last.trigger.seconds",
    "When the last trigger ended, with a committed batch or without rows, or the "
    "query started where there was none yet; in seconds since 1970-01-01 UTC.",
    "seconds",
    _PIPELINE,
)
PIPELINE_EPOCH: Final = _gauge(
    "pipeline.epoch", "Number of the last committed batch.", "", _PIPELINE
)
PIPELINE_WATERMARK: Final = _gauge(
    "pipeline.watermark.seconds",
    "Watermark of the last batch, in seconds since 1970-01-01 UTC; no sample for "
    "pipelines without one.",
    "seconds",
    _PIPELINE,
)
PIPELINE_STATE_ROWS: Final = _gauge(
    "pipeline.state.rows", "Rows in the state of the query.", "rows", _PIPELINE
)
PIPELINE_LAG: Final = _gauge(
    "pipeline.lag.offsets",
    "Offsets that were available and not read yet when the last batch was planned.",
    "offsets",
    ("pipeline", "topic", "partition"),
)
PIPELINE_NEXT: Final = _gauge(
    "pipeline.next.offset",
    "Offset of the next message that the pipeline will read.",
    "",
    ("pipeline", "topic", "partition"),
)

PIPELINE_CHANGED: Final = _gauge(
    "pipeline.changed",
    "1 while the files of the pipeline, or streams that it uses, differ from what "
    "it was started with, else 0.",
    "",
    _PIPELINE,
)

# --- jobs: pipelines, copies and spools ----------------------------------------------

JOB_PAUSED: Final = _gauge(
    "job.paused",
    "1 while a user has paused the job, else 0.",
    "",
    _JOB,
)

SKIPPED_OFFSETS: Final = _counter(
    "skipped.offsets",
    "Offsets that a copy skipped to be on time (`fresh.within.millis`).",
    "offsets",
    _JOB,
)
SKIPPED_OPEN_OFFSETS: Final = _gauge(
    "skipped.open.offsets",
    "Offsets that were skipped, and that no backfill has read yet.",
    "offsets",
    _JOB,
)
SKIPPED_OPEN_RANGES: Final = _gauge(
    "skipped.open.ranges", "Ranges of these offsets.", "", _JOB
)
SKIPPING_STOPPED: Final = _gauge(
    "skipping.stopped",
    "1 while rows are late and are not skipped, because `fresh.max.ranges` are open; "
    "else 0.",
    "",
    _JOB,
)

METRICS: Final = tuple(
    value for value in list(globals().values()) if isinstance(value, Metric)
)
"""All of the framework's own, in the order of the page."""

CONVENTIONS: Final[Mapping[str, str]] = {
    READ_MESSAGES.name: "messaging.client.consumed.messages",
    WRITE_ROWS.name: "messaging.client.sent.messages",
}
"""Names in OpenTelemetry's messaging conventions of what those define; other metrics
keep their name there, below ``streamfactory.``."""

ATTRIBUTES: Final[Mapping[str, str]] = {
    "topic": "messaging.destination.name",
    "partition": "messaging.destination.partition.id",
    "group": "messaging.consumer.group.name",
    "code": "error.type",
}
"""Names of labels in OpenTelemetry's messaging conventions; other labels are prefixed
with ``streamfactory.``."""
