"""Kill rounds of group members: each message is read, and none again once committed.

Each round appends messages from outside, kills a member while it reads and commits, and
starts another one, which has to read all that was not committed.
"""

from __future__ import annotations

import base64
import random
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streamfactory.conformance.children import Nursery, Task, die
from streamfactory.conformance.harness import HasGroupProperties
from streamfactory.conformance.moments import Moments, pick, spread
from streamfactory.conformance.proving import Verdict
from streamfactory.conformance.roles import Place
from streamfactory.spi import ConsumerFactory
from streamfactory.wiring.reading.source import Source
from streamfactory.wiring.streams.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streamfactory.conformance.bench import Bench
    from streamfactory.conformance.children import Ended
    from streamfactory.conformance.moments import Moment
    from streamfactory.conformance.subject import Subject

MESSAGES: Final = 10
"""Of each partition, by round."""
_GROUP: Final = "prove"
_WAIT: Final = 0.5
"""Seconds without a message that end a member which has read what it has to."""
PATIENCE: Final = 45.0
"""Seconds that a member waits for messages, a session timeout of the server included:
shorter than children may run."""


def unprovable_groups(subject: Subject, folder: Path) -> str | None:
    """Return why the groups of a subject cannot be proved; None if they can."""
    subject.prepare()
    with closing(subject.open(folder)) as bench:
        if subject.backend.consumer_factory is None:
            return "the type cannot be read"
        bench.create()
        claims = bench.source().claims
        if claims.redelivers:
            return None
        missing = [n for n in ("replayable", "shared") if not getattr(claims, n)]
        return f"not claimed: {', '.join(missing)}" if missing else None


def prove_groups(
    subject: Subject, folder: Path, rounds: int, seed: int, patience: float = PATIENCE
) -> Iterator[Verdict]:
    """Kill group members, and restart them; a verdict of all rounds after each.

    ``patience`` is how many seconds a member waits for messages that are missing.

    A third of the kills are between a read and its commit, a third inside commit, and
    a third at any time. The group is the source's own if it has one. Otherwise it is
    the framework's, which calls ``acknowledge`` after each checkpoint.
    """
    chance = random.Random(seed)  # noqa: S311 - repeats itself
    subject.prepare()
    with closing(subject.open(folder)) as bench:
        bench.create(partitions=2)
        checkpoints = folder / "checkpoints"
        checkpoints.mkdir()
        place = Place.of(_configured(bench, checkpoints))
        nursery = bench.closing(Nursery())
        ledger, journal = Ledger(bench.harness.numbers), folder / "journal"
        calls = outside = kills = 0
        took = 0.0
        for number, way in enumerate(spread(rounds, chance)):
            for partition in bench.written:
                ledger.written |= {*bench.write(partition, MESSAGES)}
            fate, kill_after = Fate(), None
            if number % 3 == 0:
                fate = Fate(reads=chance.randrange(2))
            elif number % 3 == 1:
                fate = Fate(moment=pick(way, calls, range(outside)))
            else:
                kill_after = chance.uniform(0, took)
            ended: list[Ended] = []
            for one, after in ((fate, kill_after), (Fate(), None)):
                task = (place, str(journal), len(ledger.missing), one, patience)
                began = time.monotonic()
                ended += nursery.run(Task(read_group, task, after))
                took = time.monotonic() - began
                ledger.add(journal)
            kills += ended[0].killed
            if ended[1].answer:
                calls, outside = ended[1].answer
            problem = ended[0].problem or ended[1].problem
            lost, twice = len(ledger.missing), len(ledger.again)
            yield Verdict(kills, lost, twice, problem)
            if problem or lost or twice:
                return


def _configured(bench: Bench, checkpoints: Path) -> Any:
    factory = bench.configured().backend.consumer_factory
    options = {
        f"stream__{bench.backend.name}__consumer__type": "highlevel",
        "group__id": _GROUP,
        "startingOffsets": "earliest",
        "batch__rows": str(MESSAGES // 2),
    }
    kept = ("create_stream_level_consumer", "create_checkpoint_store")
    if all(getattr(factory, name) is getattr(ConsumerFactory, name) for name in kept):
        options["checkpoint__location"] = str(checkpoints)
    if bench.has(HasGroupProperties):
        options |= bench.use(HasGroupProperties).group_properties()
    return bench.configured(**options)


# --- what was read --------------------------------------------------------------


class Ledger:
    """What members have read and committed, by their journals."""

    def __init__(self, numbers: Callable[[pa.RecordBatch], list[int]]) -> None:
        self._numbers = numbers
        self.written: set[int] = set()
        self.again: list[int] = []
        """Read again after they were committed."""
        self._committed: set[int] = set()
        self._unknown: set[int] = set()
        """Their commit was interrupted: they are read again, or not."""

    @property
    def missing(self) -> set[int]:
        """What the next member has to read."""
        return self.written - self._committed - self._unknown

    def add(self, journal: Path) -> None:
        """Add the journal of one member, and remove it."""
        read: set[int] = set()
        text = journal.read_text() if journal.exists() else ""
        # What follows the last end of a line was cut by the kill: it did not happen.
        for line in text.split("\n")[:-1]:
            what, _, rows = line.partition(" ")
            if what == "read":
                batch = pa.ipc.open_stream(base64.b64decode(rows)).read_all()
                for number in self._numbers(batch.combine_chunks().to_batches()[0]):
                    if number in self._committed or number in read:
                        self.again.append(number)
                    self._unknown.discard(number)
                    read.add(number)
            elif what == "commit":
                self._unknown |= read
            else:
                self._committed |= read
                self._unknown -= read
                read = set()
        journal.unlink(missing_ok=True)


# --- in a child -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fate:
    """When a member dies."""

    reads: int | None = None
    """Between a read and its commit, after this number of them."""
    moment: Moment | None = None
    """Inside a commit."""


def read_group(
    place: Place, journal: str, wanted: int, fate: Fate, patience: float
) -> tuple[int, int]:
    """Read as a member of the group, and commit each batch.

    Args:
        place: The stream, configured for a group.
        journal: File that gets a line for each read, and before and after each commit.
        wanted: Messages after which the member ends, when no more arrive.
        fate: When it dies.
        patience: Seconds after which it ends without them.

    Returns:
        Calls inside the longest commit, and those of them that reach the medium.
    """
    calls = outside = found = reads = 0
    until = time.monotonic() + patience
    with (
        Moments() as moments,
        Path(journal).open("a", buffering=1) as lines,
        Stream(Source(place.configured()), start=None, follow=False) as stream,
    ):
        while time.monotonic() < until:
            batch = stream.next_batch(_WAIT)
            if batch is None or not batch.num_rows:
                if batch is None and found >= wanted:
                    break
                continue
            lines.write(f"read {_encoded(batch.rows)}\n")
            found += batch.num_rows
            if reads == fate.reads:
                die()
            reads += 1
            lines.write("commit\n")
            moments.run(stream.commit, fate.moment, die)
            lines.write("committed\n")
            if moments.calls > calls:
                calls, outside = moments.calls, moments.outside
    return calls, outside


def _encoded(rows: pa.RecordBatch) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return base64.b64encode(sink.getvalue()).decode()
