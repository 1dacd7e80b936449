"""What reads and writes while brokers fail: writers, copies and members of groups.

Each function here runs in a process of its own, which is killed, held inside its
commit, or stopped until another one has taken over. What ends by itself is begun again,
as an operator would do; which errors may end it is in `ended_by`.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
from tests.kafka.conftest import READING, WRITING, stream_of
from tests.kafka.proving import STEPS
from tests.proving.holding import Holds

import streamfactory
from streamfactory.spi import (
    CheckpointFailed,
    EpochInThePast,
    StreamError,
    TransientError,
    WriterFenced,
)
from streamfactory.transfer.copies import open_copy
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streamfactory.spi import CommitMessage, Position
    from streamfactory.wiring.writing.sink import Sink

TASKS: Final = 2
EACH: Final = 40
"""Rows of a task of an odd epoch, which does not travel inline; of others a fifth."""
PARTITIONS: Final = 3
PROTOCOLS: Final = {
    "classic": {"heartbeat.interval.ms": "500", "session.timeout.ms": "6000"},
    "consumer": {"group.protocol": "consumer"},
}
"""Properties of a group's members, by the group's protocol."""
_PAUSES: Final = (5.0, 0.3)
"""Seconds between two epochs, before and after the file ``go`` is there: the query must
keep up, and Spark takes its time to start."""


class Place(NamedTuple):
    """Where a proof is; travels to all its processes."""

    root: str
    bootstrap: str
    native: str | None
    """The folder of the compiled part; None where this machine cannot compile it."""

    def stream(self, topic: str) -> dict[str, str]:
        """The configuration of a topic of the proof."""
        return stream_of(self.bootstrap, topic) | {
            "stream.kafka.staging.location": str(Path(self.root, "staging")),
            "stream.kafka.staging.inline.bytes": "4000",
            "realtime.segment.flush.threshold.rows": "60",
            "realtime.segment.flush.threshold.time": "300ms",
        }

    def holds(self, role: str) -> Holds:
        """Those of a role."""
        return Holds(Path(self.root, "holds", role))

    def file(self, name: str) -> Path:
        return Path(self.root, name)


def value_of(number: int) -> bytes:
    """The whole message of a row: its number, and a pad that follows from it."""
    pad = random.Random(number).randbytes(number * 7919 % 300)
    return b"%d:%s" % (number, pad.hex().encode())


def number_of(value: bytes | None) -> int | None:
    """The number of a message; None where it is not what was written."""
    digits = (value or b"").partition(b":")[0]
    if not digits.isdigit() or value_of(int(digits)) != value:
        return None
    return int(digits)


def numbers_of(epoch: int, task: int) -> range:
    """The rows that a task of the writer writes."""
    first = (epoch * TASKS + task) * EACH
    return range(first, first + (EACH if epoch % 2 else EACH // 5))


def write(place: Place, native: bool) -> None:
    """Write epochs, as a driver with tasks does, until the file ``stop`` is there."""
    with (
        _role(place, "write", native),
        open_sink(place.stream("a")) as sink,
        contextlib.closing(sink.committer(writer_id="w")) as committer,
    ):
        last = committer.last()
        epoch = -1 if last is None else last.epoch
        # Also now: one that was killed or stopped may not have written it, or late.
        place.file("epoch").write_text(str(epoch))
        while not place.file("stop").exists():
            epoch += 1
            messages = [_staged(sink, epoch, task) for task in range(TASKS)]
            committer.commit(epoch, messages)
            place.file("epoch").write_text(str(epoch))
            time.sleep(_PAUSES[place.file("go").exists()])


def _staged(sink: Sink, epoch: int, task: int) -> CommitMessage:
    numbers = numbers_of(epoch, task)
    rows = pa.record_batch(
        {
            "value": pa.array([value_of(n) for n in numbers], pa.binary()),
            "_key": pa.array([b"%d" % (n % 11) for n in numbers], pa.binary()),
        }
    )
    writer = sink.writer(rows.schema, writer_id="w", epoch=epoch, task=task)
    with contextlib.closing(writer):
        writer.write(rows)
        return writer.commit()


def copy(place: Place, native: bool) -> None:
    """Copy topic a to b until killed; to its end if the file ``drain`` is there."""
    follow, stop = not place.file("drain").exists(), threading.Event()
    with _role(place, "copy", native):
        source, sink = place.stream("a"), place.stream("b")
        with open_copy(source, sink, writer_id="copy", create=False) as copying:
            copying.run(stop, follow=follow)


def member(place: Place, native: bool, protocol: str, name: str) -> None:
    """Read topic b as a member of a group; what it reads and commits is written down.

    Each line of the file is written at once: ``begin NAME``, ``row NAME PARTITION
    OFFSET NUMBER``, and ``commit PARTITION OFFSET`` after a commit.
    """
    properties = place.stream("b") | {
        "stream.kafka.consumer.type": "highlevel",
        "group.id": f"group-{protocol}",
        "startingOffsets": "earliest",
    }
    for key, value in PROTOCOLS[protocol].items():
        properties[f"stream.kafka.consumer.prop.{key}"] = value
    name = f"{name}-{os.getpid()}-{time.monotonic_ns()}"
    flags = os.O_APPEND | os.O_CREAT | os.O_WRONLY
    lines = os.open(place.file(f"group-{protocol}"), flags)
    with _role(place, f"member-{protocol}", native):
        os.write(lines, f"begin {name}\n".encode())
        with streamfactory.open(properties, follow=True) as stream:
            for count in range(sys.maxsize):
                batch = stream.next_batch(0.2)
                if batch is not None and batch.rows.num_rows:
                    places = zip(
                        batch.rows.column("partition").to_pylist(),
                        batch.rows.column("offset").to_pylist(),
                        map(number_of, batch.rows.column("value").to_pylist()),
                        strict=True,
                    )
                    text = [f"row {name} {p} {o} {n}\n" for p, o, n in places]
                    os.write(lines, "".join(text).encode())
                if count % 3 == 2:
                    _commit(stream.commit, lines)


def _commit(commit: Callable[[], Position], lines: int) -> None:
    """Commit; one that is lost is made up by the next one.

    It may be lost to a rebalance, or to a coordinator that loads for longer than the
    deadline, as on a busy machine.
    """
    with contextlib.suppress(TransientError, CheckpointFailed):
        found = commit()
        text = [f"commit {p.id} {offset}\n" for p, offset in found.items()]
        os.write(lines, "".join(text).encode())


def ended_by(error: StreamError) -> str:
    """The code of an error that brokers or successors may cause, to begin again after.

    Raises:
        StreamError: It is another one.
    """
    if isinstance(error, (TransientError, WriterFenced, EpochInThePast)):
        return error.code
    raise error


@contextlib.contextmanager
def _role(place: Place, name: str, native: bool) -> Iterator[None]:
    """Read and write on one of both paths; be held; end well by what may end it.

    It logs to a file, and writes its stacks to another one on SIGUSR1.
    """
    for variable in (READING, WRITING):
        os.environ[variable] = "required" if native else "off"
    if place.native is not None:
        sys.path.insert(0, place.native)
    place.holds(name).before(STEPS)
    logging.basicConfig(
        filename=place.file(f"{name}.log"), format="%(asctime)s %(process)d %(message)s"
    )
    logging.getLogger("streamfactory").setLevel(logging.WARNING)
    with place.file(f"{name}.stacks").open("a") as stacks:
        faulthandler.register(signal.SIGUSR1, file=stacks)
        try:
            yield
        except StreamError as error:
            with place.file("ends").open("a") as ends:
                ends.write(f"{name} {ended_by(error)}\n")
