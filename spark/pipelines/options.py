"""Options of pipeline files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from streamfactory.spi import (
    FUNCTION,
    INTEGER,
    LIST,
    PERIOD,
    SCHEMA,
    STRING,
    Option,
    OptionType,
    choice,
)

SPARK: Final = "spark"
DATAFUSION: Final = "datafusion"
AVAILABLE_NOW: Final = "available-now"
BACK_TO_BACK: Final = "back-to-back"
ONCE: Final = "once"
EACH_BATCH: Final = "batch"
REAL_TIME: Final = "real-time"
_REAL_TIME_MILLIS: Final = 20_000
"""Length of a batch in real time, if none is given."""
_LEAST_REAL_TIME: Final = 5_000
"""Spark's own limit."""
_UNITS: Final = "microsecond|millisecond|second|minute|hour|day|week|month|year"
_PART: Final = rf"\d+ (?:{_UNITS})s?"
_INTERVAL: Final = re.compile(rf"(?:interval )?{_PART}(?: {_PART})*")


@dataclass(frozen=True, slots=True)
class Trigger:
    """When batches start."""

    millis: int | None = None
    """Interval between starts; 0: back to back; None: all available rows, then stop.

    In real time: the length of a batch, at whose end its position is committed."""
    real_time: bool = False
    """Whether rows are written at once, by Spark's real-time mode."""

    def __str__(self) -> str:
        if self.real_time:
            return f"{REAL_TIME}, committed every {self.millis} ms"
        if self.millis is None:
            return AVAILABLE_NOW
        return f"every {self.millis} ms" if self.millis else BACK_TO_BACK


@dataclass(frozen=True, slots=True)
class Refresh:
    """When a lookup is read again."""

    millis: int | None = None
    """Least interval between two readings; 0: for each batch; None: once per run."""

    @property
    def once(self) -> bool:
        """Whether all batches of a run use the same rows."""
        return self.millis is None

    def __str__(self) -> str:
        if not self.millis:
            return ONCE if self.once else "for each batch"
        return f"again after {self.millis / 1000:g} s"


def _refresh(text: str) -> Refresh:
    word = text.strip().lower()
    if word in (ONCE, EACH_BATCH):
        return Refresh(None if word == ONCE else 0)
    try:
        return Refresh(PERIOD.parse(word))
    except ValueError:
        msg = f"is none of {ONCE}, {EACH_BATCH}, or a period such as 10m"
        raise ValueError(msg) from None


def _trigger(text: str) -> Trigger:
    word = text.strip().lower()
    if word == AVAILABLE_NOW:
        return Trigger()
    if word == BACK_TO_BACK:
        return Trigger(0)
    if word == REAL_TIME or word.startswith(f"{REAL_TIME} "):
        return _real_time(word.removeprefix(REAL_TIME).strip())
    try:
        return Trigger(PERIOD.parse(word))
    except ValueError:
        msg = f"is none of {AVAILABLE_NOW}, {BACK_TO_BACK}, a period such as 10s, or "
        msg += REAL_TIME
        raise ValueError(msg) from None


def _real_time(period: str) -> Trigger:
    try:
        millis = PERIOD.parse(period) if period else _REAL_TIME_MILLIS
    except ValueError:
        msg = f"has no period such as 20s after {REAL_TIME}"
        raise ValueError(msg) from None
    if millis < _LEAST_REAL_TIME:
        msg = f"has batches of {millis} ms: those of {REAL_TIME} take at least "
        msg += f"{_LEAST_REAL_TIME // 1000}s"
        raise ValueError(msg)
    return Trigger(millis, real_time=True)


def _entry_point(text: str) -> str | None:
    return None if re.fullmatch(r"[\w.-]+", text) else "is not a name of an entry point"


def _interval(text: str) -> str | None:
    words = "is not an interval such as 10 minutes or 1 day 2 hours"
    return None if _INTERVAL.fullmatch(text.strip().lower()) else words


TRIGGER: Final = OptionType(
    f"{AVAILABLE_NOW}, {BACK_TO_BACK}, period or {REAL_TIME}", _trigger
)
REFRESH: Final = OptionType(f"{ONCE}, {EACH_BATCH} or period", _refresh)

_WATERMARK: Final = (
    Option(
        "watermark.column",
        "Column of the event time. Spark drops state that is older than the watermark.",
        example="at",
    ),
    Option(
        "watermark.delay",
        "How late rows may arrive; default 0 seconds. Later rows are dropped and "
        "counted.",
        example="10 minutes",
        validator=_interval,
    ),
)

PIPELINE_OPTIONS: Final = (
    Option("name", "Name of the pipeline; by default that of the file."),
    Option("description", "Description for users.", default=""),
    Option(
        "checkpoint",
        "Folder or URL of the checkpoint, used by this pipeline only.",
        required=True,
        example="checkpoints/delays",
    ),
    Option(
        "engine",
        "What evaluates the steps: spark; or datafusion, without Java, for steps of "
        "which each row stands for itself.",
        choice(SPARK, DATAFUSION),
        default=SPARK,
    ),
    Option(
        "trigger",
        "When batches start: available-now processes all available rows and stops; "
        "back-to-back; or a period. real-time writes at once, from Kafka to Kafka.",
        TRIGGER,
        default=AVAILABLE_NOW,
    ),
    Option(
        "output.mode",
        "Output mode of aggregations, as in Spark.",
        choice("append", "update", "complete"),
        default="append",
    ),
    Option(
        "idle.stop.rounds",
        "Stop after this many rounds without rows; back to back, a round is one "
        "second.",
        INTEGER,
        minimum=1,
    ),
    Option(
        "hook.command",
        "Command to run after each committed batch, with JSON on its stdin; no shell.",
        example="notify --quiet",
    ),
    Option(
        "hook.entry.point",
        "Function to call after each committed batch: an entry point of the group "
        "streamfactory.pipeline_hooks.",
        validator=_entry_point,
    ),
    Option(
        "hook.on.failure",
        "Whether a failing hook logs a warning or fails the pipeline.",
        choice("warn", "fail"),
        default="warn",
    ),
    Option(
        "hook.timeout.millis",
        "Timeout of the hook's command.",
        PERIOD,
        default="30s",
        minimum=1,
    ),
)

SOURCE_OPTIONS: Final = (
    Option("stream", "Name or file of the stream.", required=True),
    Option(
        "id",
        "Id by which steps refer to its rows; by default input for [source], and the "
        "stream's name for [[sources]].",
    ),
    *_WATERMARK,
)

LOOKUP_OPTIONS: Final = (
    Option("id", "Id by which steps refer to its rows.", required=True),
    Option(
        "refresh",
        "When it is read again: once, at the start; for each batch; or for the first "
        "batch after a period.",
        REFRESH,
        default=ONCE,
    ),
)

LOOKUP_TABLE_OPTIONS: Final = (
    Option(
        "format",
        "A format that Spark reads: parquet, csv, json, jdbc, or that of a connector "
        "whose package [spark] names.",
        required=True,
        example="parquet",
    ),
    Option("path", "Path or URL of the table; jdbc has none."),
    Option(
        "schema",
        "Its columns, which text formats cannot state; by default those that Spark "
        "finds.",
        SCHEMA,
    ),
)

LOOKUP_STREAM_OPTIONS: Final = (
    Option(
        "stream",
        "Name or file of the stream, whose latest row of each key is the table.",
        required=True,
    ),
    Option("key", "Columns of the key.", LIST, required=True, example="customer"),
)

STEP_OPTIONS: Final = (
    Option("id", "Id by which later steps and sinks refer to its rows.", required=True),
    Option("sql", "A query in Spark SQL over earlier ids."),
    Option("sql.file", "File with the query, relative to the pipeline's file."),
    Option(
        "python",
        "In place of SQL: `module:function`, from DataFrames to a DataFrame.",
        FUNCTION,
        example="cleaning:clean",
    ),
    Option(
        "from",
        "With python: ids whose rows the function takes, in the order of its "
        "arguments; by default that of the step before, or of the source.",
        LIST,
    ),
    *_WATERMARK,
    Option(
        "distinct.by",
        "Columns whose values are not repeated: of rows with the same values one is "
        "kept.",
        LIST,
        example="id",
    ),
    Option(
        "distinct.within",
        "Time of the event time in which values are not repeated: it is the delay of "
        "the step's watermark. By default for ever, which keeps all values as state.",
        example="1 hour",
        validator=_interval,
    ),
)

EXPECTATION_OPTIONS: Final = (
    Option("name", "Name of the expectation, unique in the pipeline.", required=True),
    Option("on", "Id of the step; by default the last one."),
    Option(
        "condition",
        "A condition in Spark SQL over the columns of the step. A row for which it is "
        "false or null does not fulfil it.",
        required=True,
        example="amount > 0",
    ),
    Option(
        "on.failure",
        "What happens to rows that do not fulfil it: warn keeps them, drop drops them, "
        "dead-letter writes them to stream, fail ends the pipeline before the batch is "
        "committed.",
        choice("warn", "drop", "dead-letter", "fail"),
        default="warn",
    ),
    Option(
        "stream",
        "With dead-letter: name or file of the stream of those rows, with the column "
        "_expectation.",
    ),
)

SINK_OPTIONS: Final = (
    Option("stream", "Name or file of the stream.", required=True),
    Option(
        "name",
        "Name of the sink, unique in the pipeline; by default that of the stream.",
    ),
    Option("from", "Id whose rows are written; by default the last one.", STRING),
)

TABLE_OPTIONS: Final = (
    Option(
        "format",
        "Format of the table: a connector of Spark, whose package [spark] names.",
        required=True,
        example="delta",
    ),
    Option(
        "path",
        "Path or URL of the table, or its name where the connector takes one.",
        required=True,
        example="s3a://lake/orders",
    ),
    Option("name", "Name of the table, unique among all sinks.", required=True),
    Option("from", "Id whose rows are written; by default the last one."),
)

DEAD_LETTER_OPTIONS: Final = (
    Option("stream", "Name or file of the stream of bad messages.", required=True),
    Option("name", "Name of the sink.", default="dead-letters"),
)
