"""What may be said of writing to Kafka."""

from __future__ import annotations

import re
from typing import Final

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
        "epoch: tasks stage their rows, one transaction makes an epoch visible, once. "
        "task: a transaction of each task; less to do, at-least-once when an epoch is "
        "written again.",
        choice(EPOCH, TASK),
        default=EPOCH,
        applies=_WRITING,
    ),
    Option(
        "staging.location",
        "Folder, or URL of a file system that Arrow knows, for rows that wait for "
        "their commit. Every process that writes has to reach it. Without it they "
        "wait where they were written, and only that process can commit them.",
        OptionType("path or URL", _location, {"type": "string"}),
        applies=_WRITING,
        example="/mnt/shared/staging",
    ),
    Option(
        "staging.inline.bytes",
        "Rows of a task up to this size travel inside its commit message.",
        SIZE,
        default="256K",
        minimum=0,
        maximum=64 * 1024**2,
        applies=_WRITING,
    ),
    Option(
        "staging.age",
        "Staged rows that nobody has committed are removed after so long.",
        PERIOD,
        default="1d",
        minimum=60_000,
        applies=_WRITING,
    ),
    Option(
        "transaction.timeout",
        "How long a transaction may take before the broker ends it. When not set: of "
        "an epoch, a minute and what its rows need; of a task, 15 minutes.",
        PERIOD,
        minimum=1000,
        maximum=2**31 - 1,
        applies=_WRITING,
    ),
    Option(
        "epochs.topic",
        "Compacted topic that remembers the last epoch of every writer; it is created "
        "when it is missing.",
        default="__streamfactory_epochs",
        applies=_WRITING,
    ),
)
"""Under ``stream.kafka.``: read by `KafkaProducerFactory`."""

OWNED_PRODUCER_KEYS: Final = {
    "transactional.id": "it follows from the writer id and the topic",
    "transaction.timeout.ms": "set stream.kafka.transaction.timeout",
    "enable.idempotence": "transactions need it",
    "acks": "transactions need all",
    "request.required.acks": "transactions need all",
    "max.in.flight": "transactions keep the order of messages with up to five",
    "max.in.flight.requests.per.connection": "transactions keep the order with up to "
    "five",
    "delivery.report.only.error": "only failures are of interest",
    "dr_cb": "failures are told by errors",
    "dr_msg_cb": "failures are told by errors",
    "on_delivery": "failures are told by errors",
    "partitioner": "rows are routed as Java does it, before the client sees them",
}
"""Client keys that a user may not set, each with what to do instead."""
