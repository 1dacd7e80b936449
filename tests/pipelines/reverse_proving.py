"""Kills pipelines from a table that changes to Kafka and to files, as often as asked.

The table is written by `deltalake` alone, while the pipeline runs. The file has to have
every change once, in commit order for each key; Kafka every upsert and every tombstone,
likewise.
"""

from __future__ import annotations

import json
import random
import threading
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from tests.kafka.broker import on_a_broker
from tests.kafka.conftest import stream_of
from tests.kafka.proving import read_messages
from tests.kafka.topics import Topics
from tests.pipelines.driver import POINTS
from tests.proving.drivers import Commits, Driver, forget_commit
from tests.proving.sessions import Topic
from tests.proving.verdict import Verdict, compared

from streamfactory.wiring.streams.stream import open_stream

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PARTITIONS: Final = 2
KEYS: Final = 40
"""Ids of rows."""
PAUSE: Final = 0.3
"""Seconds between two commits while the pipeline runs."""
MEANWHILE: Final = 12
"""Commits while the pipeline runs, at most: on a slow machine it would fall behind."""
TOMBSTONE: Final = -1
KINDS: Final = ("insert", "update_before", "update_after", "delete")
PIPELINE: Final = """
checkpoint = "checkpoint"
[source]
stream = "table.json"
[[sinks]]
stream = "changes.json"
[[sinks]]
stream = "kafka.json"
"""


class ChangingTable:
    """A Delta table, and all changes that were made to it, by key.

    Args:
        folder: Where the table is; empty.
        seed: Of what is changed.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = str(folder)
        self._chance = random.Random(seed)
        self.rows: dict[int, int] = {}
        """Numbers of the rows that are there, by id."""
        self._number = 0
        self.changes: dict[int, list[tuple[str, int]]] = {}
        """Kind and number of each change, by id, in commit order."""
        feed = {"delta.enableChangeDataFeed": "true"}
        rows = self._inserted(range(KEYS // 2))
        write_deltalake(self._folder, rows, configuration=feed)

    def change(self) -> None:
        """Make one commit, of inserts, updates or deletes."""
        part = self._chance.randrange(5)
        chosen = [key for key in sorted(self.rows) if key % 5 == part]
        missing = [key for key in range(KEYS) if key not in self.rows]
        do = self._chance.choice(["insert", "update", "update", "delete"])
        if do == "insert" and missing:
            keys = self._chance.sample(missing, min(len(missing), 5))
            write_deltalake(self._folder, self._inserted(keys), mode="append")
        elif do == "delete" and chosen:
            DeltaTable(self._folder).delete(f"id % 5 = {part}")
            for key in chosen:
                self._note(key, "delete", self.rows.pop(key))
        elif chosen:
            self._number += 1
            to = {"number": str(self._number)}
            DeltaTable(self._folder).update(predicate=f"id % 5 = {part}", updates=to)
            for key in chosen:
                self._note(key, "update_before", self.rows[key])
                self._note(key, "update_after", self._number)
                self.rows[key] = self._number

    def _inserted(self, keys: Any) -> pa.Table:
        numbers = []
        for key in keys:
            self._number += 1
            self.rows[key] = self._number
            self._note(key, "insert", self._number)
            numbers.append(self._number)
        ids = pa.array(list(keys), pa.int64())
        return pa.table({"id": ids, "number": pa.array(numbers, pa.int64())})

    def _note(self, key: int, kind: str, number: int) -> None:
        self.changes.setdefault(key, []).append((kind, number))


class Proof:
    """One pipeline that is killed again and again.

    Args:
        folder: Of the table, the topics and the checkpoint; empty.
        bootstrap: Where Kafka is.
        seed: Of all that is left to chance.
    """

    def __init__(self, folder: Path, bootstrap: str, seed: int) -> None:
        self._folder = folder
        self._bootstrap = bootstrap
        self._chance = random.Random(seed)
        self._table = ChangingTable(folder / "lake", seed)
        partitions = {"stream.file.partitions": str(PARTITIONS)}
        keys = {"producer.key.columns": "id"}
        self._changes = Topic(folder, "changes", **partitions, **keys)
        self._topic = Topics(bootstrap).create(partitions=PARTITIONS)
        staged = {"stream.kafka.staging.location": str(folder / "staging")}
        decoder = {"stream.kafka.decoder.class.name": "json"}
        upserts = {**keys, "producer.change.column": "_change"}
        kafka = stream_of(bootstrap, self._topic) | staged | decoder | upserts
        delta = {"streamType": "delta", "stream.delta.path": str(folder / "lake")}
        for name, properties in (
            ("table", delta),
            ("changes", self._changes.options),
            ("kafka", kafka),
        ):
            body = {"name": name, "properties": properties}
            (folder / f"{name}.json").write_text(json.dumps(body))
        (folder / "p.toml").write_text(PIPELINE)

    def kill(self, where: str | None = None) -> bool:
        """Run while the table changes, and be killed at a point, or at any moment.

        Answers:
            Whether it was killed: it may come to its end first.
        """
        checkpoint = self._folder / "checkpoint" / "1"
        planned = (checkpoint / "offsets" / "0").exists()
        for _ in range(3 if planned else 0):
            self._table.change()
        commits = Commits(checkpoint)
        run = self._start(where or "never", self._chance.randint(0, 3))
        # The table changes once the commit of the snapshot is chosen.
        if planned or run.wait_for((checkpoint / "offsets" / "0").exists):
            with _meanwhile(self._table):
                if where is None and run.wait_for(lambda: commits.grown):
                    run.kill_after(self._chance.random() * 2)
                killed = run.was_killed()
        else:
            killed = run.was_killed()
        if self._chance.random() < 0.3:
            forget_commit(checkpoint)
        return killed

    def finish(self) -> Verdict:
        """Run to the end, and compare what came out with what was changed."""
        self._table.change()
        self._start("never", 0).succeed()
        made = self._table.changes
        logged = {
            f"file, key {key}": [_code(*change) for change in changes]
            for key, changes in made.items()
        }
        sent = {
            f"kafka, key {key}": [
                TOMBSTONE if kind == "delete" else number
                for kind, number in changes
                if kind != "update_before"
            ]
            for key, changes in made.items()
        }
        return compared(logged | sent, self._logged() | self._sent())

    def _logged(self) -> dict[str, list[int]]:
        """Changes by key, in order of commits.

        Within a commit delta-rs stores the images of an update in any order.
        """
        found: dict[str, list[tuple[str, int, int]]] = {}
        with open_stream(self._changes.options) as stream:
            for batch in stream:
                for row in batch.rows.to_pylist():
                    kind, number = row["_change"], row["number"]
                    change = (row["_commit"], KINDS.index(kind), _code(kind, number))
                    found.setdefault(f"file, key {row['id']}", []).append(change)
        return {
            place: [
                code
                for _, images in groupby(changes, key=lambda change: change[0])
                for _, _, code in sorted(images)
            ]
            for place, changes in found.items()
        }

    def _sent(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        messages = read_messages(self._bootstrap, self._topic, PARTITIONS)
        for key, value in (one for partition in messages.values() for one in partition):
            number = TOMBSTONE if value is None else json.loads(value)["number"]
            place = f"kafka, key {(key or b'').decode()}"
            found.setdefault(place, []).append(number)
        return found

    def _start(self, where: str, passes: int) -> Driver:
        line = [where, passes, "p.toml", "--json", "--master", "local[2]"]
        return Driver(self._folder, "tests.pipelines.driver", *line)


def _code(kind: str, number: int) -> int:
    return number * len(KINDS) + KINDS.index(kind)


@contextmanager
def _meanwhile(table: ChangingTable) -> Iterator[None]:
    """Change a table while a pipeline runs."""
    stop = threading.Event()
    failed: list[BaseException] = []

    def change() -> None:
        try:
            for _ in range(MEANWHILE):
                if stop.wait(PAUSE):
                    return
                table.change()
        except BaseException as error:  # raised where the thread is joined
            failed.append(error)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    if failed:
        raise failed[0]


def prove(rounds: int, seed: int, place: Path) -> Verdict:
    """Kill so many runs of one pipeline."""
    return on_a_broker("reverse", place, partial(hunt, rounds, seed, place))


def hunt(rounds: int, seed: int, place: Path, bootstrap: str) -> Verdict:
    """As `prove`, on a broker that is there."""
    proof, chance, kills = Proof(place, bootstrap, seed), random.Random(seed), 0
    while kills < rounds:
        kills += proof.kill(chance.choice([*POINTS, None]))
    verdict = proof.finish()
    verdict.kills = kills
    return verdict
