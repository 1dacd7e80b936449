"""What the file of a pipeline may say, each option declared once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from streamfactory.spi import INTEGER, PERIOD, STRING, Option, OptionType, choice

AVAILABLE_NOW: Final = "available-now"
BACK_TO_BACK: Final = "back-to-back"
_UNITS: Final = "microsecond|millisecond|second|minute|hour|day|week|month|year"
_PART: Final = rf"\d+ (?:{_UNITS})s?"
_INTERVAL: Final = re.compile(rf"(?:interval )?{_PART}(?: {_PART})*")


@dataclass(frozen=True, slots=True)
class Trigger:
    """When batches begin."""

    millis: int | None = None
    """From start to start; 0 is back to back; None: all there is now, then the end."""

    def __str__(self) -> str:
        if self.millis is None:
            return AVAILABLE_NOW
        return f"every {self.millis} ms" if self.millis else BACK_TO_BACK


def _trigger(text: str) -> Trigger:
    word = text.strip().lower()
    if word == AVAILABLE_NOW:
        return Trigger()
    if word == BACK_TO_BACK:
        return Trigger(0)
    try:
        return Trigger(PERIOD.parse(word))
    except ValueError:
        msg = f"is none of {AVAILABLE_NOW}, {BACK_TO_BACK}, or a period such as 10s"
        raise ValueError(msg) from None


def _entry_point(text: str) -> str | None:
    return None if re.fullmatch(r"[\w.-]+", text) else "is no name of an entry point"


def _interval(text: str) -> str | None:
    words = "is no interval, such as 10 minutes or 1 day 2 hours"
    return None if _INTERVAL.fullmatch(text.strip().lower()) else words


TRIGGER: Final = OptionType(f"{AVAILABLE_NOW}, {BACK_TO_BACK} or period", _trigger)

_WATERMARK: Final = (
    Option(
        "watermark.column",
        "Column of the event time: Spark forgets what is older than the watermark.",
        example="at",
    ),
    Option(
        "watermark.delay",
        "How late rows may come, else 0 seconds; later ones are dropped, and counted.",
        example="10 minutes",
        validator=_interval,
    ),
)

PIPELINE_OPTIONS: Final = (
    Option("name", "Name of the pipeline; else that of the file."),
    Option("description", "For people.", default=""),
    Option(
        "checkpoint",
        "Folder, or its URL, of what the pipeline remembers: its own, nobody else's.",
        required=True,
        example="checkpoints/delays",
    ),
    Option(
        "trigger",
        "When batches begin: all there is now and then the end, back to back, or "
        "once in a period.",
        TRIGGER,
        default=AVAILABLE_NOW,
    ),
    Option(
        "output.mode",
        "Which rows of an aggregation leave with a batch, as in Spark.",
        choice("append", "update", "complete"),
        default="append",
    ),
    Option(
        "idle.stop.rounds",
        "Stop after so many rounds without rows; back to back, a round is a second.",
        INTEGER,
        minimum=1,
    ),
    Option(
        "hook.command",
        "Command to run after each committed batch, which it reads as JSON; no shell.",
        example="notify --quiet",
    ),
    Option(
        "hook.entry.point",
        "Function to call instead: an entry point of the group "
        "streamfactory.pipeline_hooks.",
        validator=_entry_point,
    ),
    Option(
        "hook.on.failure",
        "What becomes of a pipeline whose hook fails.",
        choice("warn", "fail"),
        default="warn",
    ),
    Option(
        "hook.timeout.millis",
        "How long a hook's command may take.",
        PERIOD,
        default="30s",
        minimum=1,
    ),
)

SOURCE_OPTIONS: Final = (
    Option("stream", "Name of the stream, or its file.", required=True),
    Option("id", "What steps call its rows.", default="input"),
    *_WATERMARK,
)

STEP_OPTIONS: Final = (
    Option("id", "What later steps and sinks call its rows.", required=True),
    Option("sql", "A query in Spark's SQL over earlier ids."),
    Option("sql.file", "A file with the query instead, beside the pipeline's."),
    *_WATERMARK,
)

SINK_OPTIONS: Final = (
    Option("stream", "Name of the stream, or its file.", required=True),
    Option("name", "Unlike that of other sinks; else the stream's."),
    Option("from", "Id whose rows it takes; else the last one.", STRING),
)

DEAD_LETTER_OPTIONS: Final = (
    Option("stream", "Stream of bad messages, or its file.", required=True),
    Option("name", "Of the sink.", default="dead-letters"),
)
