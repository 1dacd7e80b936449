"""Options for writing to Kafka."""

from __future__ import annotations

import re
from typing import Final

from streamfactory.backends.kafka.options import AUTO, OFF, REQUIRED, WRITING
from streamfactory.spi import PATH, PERIOD, SIZE, Option, OptionType, choice

EPOCH: Final = "epoch"
TASK: Final = "task"

_WRITING: Final = frozenset({"write", "spark"})


def _location(text: str) -> str:
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text):
        return text.rstrip("/")
    found: str = PATH.parse(text)
    return found


WRITE_OPTIONS: Final = (
    Option(
        "commit.mode",
        "epoch: tasks stage their rows, and one transaction commits the epoch, exactly "
        "once. task: one transaction per task; cheaper, but at-least-once if an epoch "
        "is repeated.",
        choice(EPOCH, TASK),
        default=EPOCH,
        applies=_WRITING,
    ),
    Option(
        "staging.location",
        "Folder, or URL of a file system that Arrow supports, for staged rows. All "
        "writing processes must be able to access it. Without it, only the process "
        "that staged rows can commit them.",
        OptionType("path or URL", _location, {"type": "string"}),
        applies=_WRITING,
        example="/mnt/shared/staging",
    ),
    Option(
        "staging.inline.bytes",
        "Maximum size of staged rows that are sent within the commit message.",
        SIZE,
        default="256K",
        minimum=0,
        maximum=64 * 1024**2,
        applies=_WRITING,
    ),
    Option(
        "staging.age.millis",
        "Age at which staged rows that were not committed are removed.",
        PERIOD,
        default="1d",
        minimum=60_000,
        applies=_WRITING,
        former=("staging.age",),
    ),
    Option(
        "transaction.timeout.millis",
        "Timeout after which the broker aborts a transaction. Default: for an epoch, "
        "one minute or more, by the size of its rows; for a task, 15 minutes.",
        PERIOD,
        minimum=1000,
        maximum=2**31 - 1,
        applies=_WRITING,
        former=("transaction.timeout",),
    ),
    Option(
        WRITING,
        "Whether the package streamfactory-native sends rows from Arrow batches: auto "
        "uses it where it is installed and fits, required fails without it.",
        choice(AUTO, OFF, REQUIRED),
        default=AUTO,
        applies=_WRITING,
    ),
    Option(
        "epochs.topic",
        "Compacted topic of the epoch markers of writers; created if it is missing.",
        default="__streamfactory_epochs",
        applies=_WRITING,
    ),
)
"""Under ``stream.kafka.``: read by `KafkaProducerFactory`."""

OWNED_PRODUCER_KEYS: Final = {
    "transactional.id": "it is derived from the writer id and the topic",
    "transaction.timeout.ms": "set stream.kafka.transaction.timeout.millis",
    "enable.idempotence": "transactions require it",
    "acks": "transactions require all",
    "request.required.acks": "transactions require all",
    "max.in.flight": "transactions keep the order of messages with up to five",
    "max.in.flight.requests.per.connection": "transactions keep the order with up to "
    "five",
    "delivery.report.only.error": "only failures are processed",
    "dr_cb": "failures are raised as errors",
    "dr_msg_cb": "failures are raised as errors",
    "on_delivery": "failures are raised as errors",
    "partitioner": "rows are routed before they reach the client, as in Java",
}
"""Client properties that a user must not set, and the reason."""
