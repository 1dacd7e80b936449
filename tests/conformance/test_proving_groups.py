"""Kill rounds of group members: each defect is found, by what it loses or repeats."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from tests.conformance.test_acknowledging import AcknowledgesWhatItReads
from tests.zoo.matrix import plugins_for

from streamfactory.conformance.proving_groups import prove_groups, unprovable_groups
from streamfactory.conformance.specimens import durable, forgetful, redelivering
from streamfactory.conformance.specimens.durable import (
    DurableConsumer,
    DurableConsumerFactory,
    DurableHarness,
    DurableMetadata,
)
from streamfactory.conformance.specimens.redelivering import RedeliveringHarness
from streamfactory.conformance.subject import Subject
from streamfactory.spi import (
    Fetched,
    FetchLimits,
    Partition,
    Position,
    StreamLevelConsumer,
)

if TYPE_CHECKING:
    from streamfactory.conformance.proving import Verdict
    from streamfactory.spi import Backend, ConsumerFactory

ROUNDS = 6
PATIENCE = 2.0
"""Of a member, where messages are lost: so long a test waits."""


class OwnMember(StreamLevelConsumer):
    """A group that the source keeps: positions lie in a file beside the stream."""

    def __init__(self, path: str) -> None:
        self._path = path
        infos = DurableMetadata(path).fetch_partitions(["numbers"], ())
        self._partitions = {
            i.partition: DurableConsumer(path, i.partition) for i in infos
        }
        self._next = {info.partition: info.earliest for info in infos}
        stored = self.file()
        if stored.exists():
            held = json.loads(stored.read_text())
            self._next = {
                partition: held[str(partition.id)] for partition in self._next
            }
        self._committed = dict(self._next)

    def fetch_messages(self, limits: FetchLimits) -> tuple[Partition, Fetched] | None:
        share = replace(limits, timeout=limits.timeout / len(self._partitions))
        for partition, consumer in self._partitions.items():
            fetched = consumer.fetch_messages(self._next[partition], None, share)
            self._next[partition] = fetched.next_offset
            if fetched.rows is not None:
                self.was_read()
                return partition, fetched
        return None

    def was_read(self) -> None:
        """After each answer with rows."""

    def assignment(self) -> frozenset[Partition]:
        return frozenset(self._partitions)

    def commit(self, position: Position) -> None:
        # A position names the partitions that this member has read.
        self._committed |= dict(position)
        self.store({str(partition.id): at for partition, at in self._committed.items()})

    def store(self, offsets: dict[str, int]) -> None:
        new = self.file().with_suffix(".new")
        new.write_text(json.dumps(offsets))
        new.replace(self.file())

    def file(self) -> Path:
        return Path(f"{self._path}.group")


class CommitsWhatItReads(OwnMember):
    """Stores its position when it reads."""

    def was_read(self) -> None:
        self.store(
            {str(partition.id): offset for partition, offset in self._next.items()}
        )


class CommitsTheLastRead(OwnMember):
    """Stores the last offset instead of the next one."""

    def store(self, offsets: dict[str, int]) -> None:
        super().store(
            {partition: max(0, offset - 1) for partition, offset in offsets.items()}
        )


class OwnGroups(DurableConsumerFactory):
    """Reads the file by members of its own."""

    MEMBER: ClassVar[type[OwnMember]] = OwnMember

    def create_stream_level_consumer(
        self, client_id: str, group_id: str
    ) -> StreamLevelConsumer:
        return self.MEMBER(self.config["path"])


class CommitsEarly(OwnGroups):
    MEMBER = CommitsWhatItReads


class CommitsShort(OwnGroups):
    MEMBER = CommitsTheLastRead


def proved(
    backend: Backend,
    factory: type[ConsumerFactory],
    harness: Any,
    folder: Path,
    **options: float,
) -> Verdict:
    backend = replace(backend, consumer_factory=factory)
    subject = Subject(backend, harness, plugins_for(backend))
    look, place = folder / "look", folder / "place"
    look.mkdir()
    place.mkdir()
    assert unprovable_groups(subject, look) is None
    return list(prove_groups(subject, place, ROUNDS, seed=1, **options))[-1]


@pytest.mark.slow("kills processes")
@pytest.mark.parametrize(
    "factory",
    [
        OwnGroups,
        pytest.param(
            DurableConsumerFactory, marks=pytest.mark.long("the command proves it, too")
        ),
    ],
)
def test_a_correct_group_loses_and_repeats_nothing(
    tmp_path: Path, factory: type[ConsumerFactory]
) -> None:
    backend = durable.streamfactory_backend()
    verdict = proved(backend, factory, DurableHarness, tmp_path)
    assert (verdict.lost, verdict.twice, verdict.problem) == (0, 0, "")
    assert verdict.kills >= ROUNDS // 3


@pytest.mark.slow("kills processes")
def test_messages_that_are_acknowledged_too_early_are_lost(tmp_path: Path) -> None:
    backend = redelivering.streamfactory_backend()
    verdict = proved(
        backend,
        AcknowledgesWhatItReads,
        RedeliveringHarness,
        tmp_path,
        patience=PATIENCE,
    )
    assert (verdict.lost > 0, verdict.twice) == (True, 0)


@pytest.mark.long("further defects of groups, by kills of processes")
def test_a_group_that_commits_what_it_reads_loses_rows(tmp_path: Path) -> None:
    backend = durable.streamfactory_backend()
    verdict = proved(backend, CommitsEarly, DurableHarness, tmp_path, patience=PATIENCE)
    assert (verdict.lost > 0, verdict.twice) == (True, 0)


@pytest.mark.long("further defects of groups, by kills of processes")
def test_a_group_that_commits_the_last_offset_repeats_rows(tmp_path: Path) -> None:
    backend = durable.streamfactory_backend()
    verdict = proved(backend, CommitsShort, DurableHarness, tmp_path)
    assert (verdict.lost, verdict.twice > 0) == (0, True)


def test_what_forgets_cannot_be_proved(tmp_path: Path) -> None:
    backend = forgetful.streamfactory_backend()
    subject = Subject(backend, forgetful.ForgetfulHarness, plugins_for(backend))
    why = unprovable_groups(subject, tmp_path)
    assert why == "not claimed: replayable, shared"
