"""``kafka`` as a sink: tasks, drivers and the broker are killed, drivers come back.

A driver stages the tasks of an epoch and commits it, epoch after epoch; its successor
asks for the last one. Read back with ``read_committed``, every row is there once.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
import uuid
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from confluent_kafka import Consumer, Message, TopicPartition
from tests.kafka.broker import Addresses, Cluster
from tests.kafka.conftest import chosen_paths
from tests.kafka.jars import Unavailable
from tests.kafka.topics import Topics
from tests.proving.children import DEADLINE, Child, KillAt
from tests.proving.verdict import Verdict, compared

from streamfactory.backends.kafka.markers import Markers
from streamfactory.backends.kafka.producing import TransactionalProducer
from streamfactory.backends.kafka.staging import Stage, StagingArea
from streamfactory.backends.kafka.writing_topics import WrittenTopics
from streamfactory.spi import EpochInThePast, WriterFenced
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.spi import CommitMessage
    from streamfactory.wiring.writing.sink import Sink

WRITER: Final = "prover"
TASKS: Final = 2
EACH: Final = 200
"""Rows of a task."""
PARTITIONS: Final = 3
STEPS: Final = {
    "append": Stage,
    "seal": Stage,
    "read": Markers,
    "begin": TransactionalProducer,
    "send": TransactionalProducer,
    "send_one": TransactionalProducer,
    "commit": TransactionalProducer,
    "await_visible": WrittenTopics,
    "remove": StagingArea,
    "sweep": StagingArea,
}
"""Before any of these a driver can die."""


def stream(root: str) -> dict[str, str]:
    bootstrap, topic = Path(root, "stream").read_text().split()
    return {
        **chosen_paths(),
        "streamType": "kafka",
        "stream.kafka.broker.list": bootstrap,
        "stream.kafka.topic.name": topic,
        "stream.kafka.decoder.class.name": "raw",
        "stream.kafka.consumer.prop.reconnect.backoff.ms": "20",
        "stream.kafka.producer.prop.reconnect.backoff.ms": "20",
        "stream.kafka.staging.location": str(Path(root, "staging")),
        "stream.kafka.staging.inline.bytes": "4000",
        "producer.key.columns": "value",
    }


def rows_of(epoch: int, task: int) -> pa.RecordBatch:
    # Tasks of odd epochs are too large to travel inline.
    count = EACH if epoch % 2 else EACH // 10
    first = (epoch * TASKS + task) * EACH
    values = [b"%d" % number for number in range(first, first + count)]
    return pa.record_batch({"value": pa.array(values, pa.binary())})


def numbers_until(epoch: int) -> list[int]:
    """All numbers of all epochs up to this one."""
    return [
        int(value)
        for number in range(epoch + 1)
        for task in range(TASKS)
        for value in rows_of(number, task).column("value").to_pylist()
    ]


def drive(root: str, step: str | None = None, passes: int = 0) -> None:
    """Write epochs until asked to stop; die before a step, or be fenced."""
    if step is not None:
        _die_before(STEPS[step], step, KillAt(step, passes))
    with (
        contextlib.suppress(WriterFenced, EpochInThePast),
        open_sink(stream(root)) as sink,
        contextlib.closing(sink.committer(writer_id=WRITER)) as committer,
    ):
        held = committer.last()
        epoch = 0 if held is None else held.epoch + 1
        while not Path(root, "stop").exists():
            messages = [_stage(sink, epoch, task) for task in range(TASKS)]
            committer.commit(epoch, messages)
            epoch += 1


def _stage(sink: Sink, epoch: int, task: int) -> CommitMessage:
    rows = rows_of(epoch, task)
    writer = sink.writer(rows.schema, writer_id=WRITER, epoch=epoch, task=task)
    with contextlib.closing(writer):
        writer.write(rows)
        return writer.commit()


def _die_before(owner: type, name: str, hook: Callable[..., None]) -> None:
    method = getattr(owner, name)

    @wraps(method)
    def dying(*arguments: Any, **options: Any) -> Any:
        hook(name, None)
        return method(*arguments, **options)

    setattr(owner, name, dying)


class Proof:
    """One writer whose drivers are killed again and again.

    Args:
        root: A folder of its own; empty.
        bootstrap: Where the broker is.
        seed: Of all that is left to chance.
        cluster: The broker, where it may be killed too.
    """

    def __init__(
        self, root: Path, bootstrap: str, seed: int, cluster: Cluster | None = None
    ) -> None:
        self._root = str(root)
        self._chance = random.Random(seed)
        self._bootstrap = bootstrap
        self._cluster = cluster
        topics = Topics(bootstrap)
        self._topic = topics.create(f"proof-{uuid.uuid4().hex[:8]}", PARTITIONS)
        (root / "stream").write_text(f"{bootstrap} {self._topic}")

    def at_step(self, step: str) -> bool:
        """Kill a driver before a step; False where it never came to it."""
        passes = self._chance.randint(0, 3)
        child = Child(drive, self._root, step, passes)
        return self._ended(child)

    def at_any_moment(self) -> bool:
        """Kill a driver at any moment."""
        child = Child(drive, self._root)
        child.wait_until_it_runs()
        time.sleep(self._chance.random() * 1.5)
        return child.kill()

    def zombie(self) -> bool:
        """Stop a driver, let another take over, and let the first go on."""
        before = self.last()
        child = Child(drive, self._root)
        self._await_epoch(before + 1)  # it has claimed the writer
        time.sleep(self._chance.random() / 2)
        pid = child.process.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        held = self.last()
        other = Child(drive, self._root)
        try:
            self._await_epoch(held + 1)
            os.kill(pid, signal.SIGCONT)
            status = child.join()  # it ends by itself, and well: fenced
            assert status == 0, status
            self._await_epoch(self.last() + 1)
        finally:
            child.end()
            killed = other.kill()
        return killed

    def broker(self) -> bool:
        """Kill the broker under a driver, and start it again."""
        assert self._cluster is not None
        child = Child(drive, self._root)
        try:
            child.wait_until_it_runs()
            time.sleep(0.5 + self._chance.random())
            before = self.last()
            (node,) = self._cluster.nodes
            node.end(signal.SIGKILL)
            node.start(os.getpid())
            self._cluster.wait()
            self._await_epoch(before + 2)
        finally:
            child.kill()
        return True

    def last(self) -> int:
        """The last epoch that is remembered; -1 for none."""
        with open_sink(stream(self._root)) as sink:
            held = sink.factory.fetch_last_commit(WRITER)
        return -1 if held is None else held.epoch

    def finish(self) -> Verdict:
        """Let a driver end well; compare what was written with what is there."""
        child = Child(drive, self._root)
        try:
            self._await_epoch(self.last() + 1)
            Path(self._root, "stop").touch()
            status = child.join()
            assert status == 0, status
        finally:
            child.end()
        found = read_committed(self._bootstrap, self._topic, PARTITIONS)
        wanted = numbers_until(self.last())
        partitions = {n: partition for partition, some in found.items() for n in some}
        order: dict[str, list[int]] = {str(partition): [] for partition in found}
        for number in wanted:
            order[str(partitions.get(number, 0))].append(number)
        left = [*Path(self._root, "staging").glob("*/*")]
        verdict = compared(
            order, {str(partition): some for partition, some in found.items()}
        )
        verdict.notes.append(f"kafka: {len(wanted)} rows, {len(left)} files left")
        return verdict

    def _await_epoch(self, epoch: int) -> None:
        deadline = time.monotonic() + DEADLINE
        while self.last() < epoch:
            if time.monotonic() > deadline:
                msg = f"epoch {epoch} was not committed in {DEADLINE:.0f} s"
                raise TimeoutError(msg)
            time.sleep(0.02)

    def _ended(self, child: Child) -> bool:
        """Wait for the death of a driver that has been asked to end."""
        deadline = time.monotonic() + DEADLINE
        while child.process.is_alive() and time.monotonic() < deadline:
            time.sleep(0.01)
        return child.kill()


def read_committed(bootstrap: str, topic: str, partitions: int) -> dict[int, list[int]]:
    """All numbers that a reader sees, by partition, without our code."""
    found = read_messages(bootstrap, topic, partitions)
    return {
        partition: [int(value or b"") for _, value in messages]
        for partition, messages in found.items()
    }


def read_messages(
    bootstrap: str, topic: str, partitions: int
) -> dict[int, list[tuple[bytes | None, bytes | None]]]:
    """Keys and values of all messages that a reader sees, likewise."""
    found = committed_messages(bootstrap, topic, partitions)
    return {
        partition: [(_octets(one.key()), one.value()) for one in messages]
        for partition, messages in found.items()
    }


def committed_messages(
    bootstrap: str, topic: str, partitions: int
) -> dict[int, list[Message]]:
    """All messages that a reader sees, likewise."""
    found: dict[int, list[Message]] = {number: [] for number in range(partitions)}
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "proof",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,  # the end is found by fetches that wait in vain
            "reconnect.backoff.ms": 20,
            "log_level": 0,
        }
    )
    with contextlib.closing(consumer):
        consumer.assign([TopicPartition(topic, partition, 0) for partition in found])
        ended: set[int] = set()
        deadline = time.monotonic() + DEADLINE
        while len(ended) < partitions:
            if time.monotonic() > deadline:
                msg = f"no end of {topic} in {DEADLINE:.0f} s"
                raise TimeoutError(msg)
            for message in consumer.consume(500, 0.1):
                partition = message.partition()
                assert partition is not None
                if message.error() is None:
                    found[partition].append(message)
                else:
                    ended.add(partition)
    return found


def _octets(key: bytes | str | None) -> bytes | None:
    return key.encode() if isinstance(key, str) else key


def prove(rounds: int, seed: int, place: Path) -> Verdict:
    """Kill so many times: drivers at steps and at any moment, the broker, zombies."""
    try:
        cluster = Cluster(place / "broker")
        with cluster:
            return hunt(rounds, seed, place, cluster.addresses, cluster)
    except Unavailable as reason:
        return Verdict(notes=[f"kafka: NOT PROVED, {reason}"])


def hunt(
    rounds: int, seed: int, place: Path, where: Addresses, cluster: Cluster | None
) -> Verdict:
    """As `prove`, on a broker that is there; it is killed where it is given."""
    proof, chance = Proof(place, where.bootstrap, seed, cluster), random.Random(seed)
    kills = 0
    while kills < rounds:
        dice = chance.random()
        if dice < 0.05 and cluster is not None:
            kills += proof.broker()
        elif dice < 0.12:
            kills += proof.zombie()
        elif dice < 0.4:
            kills += proof.at_any_moment()
        else:
            kills += proof.at_step(chance.choice(sorted(STEPS)))
    verdict = proof.finish()
    verdict.kills = kills
    return verdict
