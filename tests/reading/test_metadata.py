"""M1 to M7: what a stream has, asked through `Metadata`."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.specimens import PARTITION_0, SCHEMA, TOPIC, Author

from streamfactory.spi import (
    ClosedError,
    ConfigError,
    ConnectionFailed,
    ContractBroken,
    PartialMetadata,
    Partition,
    PartitionInfo,
    PartitionState,
    PartitionVanished,
    Position,
    SchemaUnknown,
    StreamTimeout,
    TopicNotFound,
)
from streamfactory.wiring.testing.faults import SimulatedClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streamfactory.wiring.reading.metadata import Metadata

FAR = Partition(TOPIC, 65_000)


@pytest.fixture
def metadata_of() -> Iterator[Callable[..., Metadata]]:
    """Makes the metadata of a scripted author."""
    opened: list[Any] = []

    def make(author: Author, **options: str) -> Metadata:
        source = author.source(clock=SimulatedClock(), **options)
        opened.append(source)
        return source.metadata

    yield make
    for source in opened:
        source.close()


def several(*topics: str) -> Author:
    author = Author()
    author.topics = list(topics)
    author.infos = [PartitionInfo(Partition(topic, 0), 0, 5) for topic in topics]
    return author


def test_all_partitions_come_by_one_call(metadata_of: Callable[..., Metadata]) -> None:
    author = Author()
    author.infos = [PartitionInfo(FAR, 3, 9), PartitionInfo(PARTITION_0, 0, 5)]
    infos = metadata_of(author).partitions()
    assert infos == [PartitionInfo(PARTITION_0, 0, 5), PartitionInfo(FAR, 3, 9)]
    assert author.looked_up == 1
    assert author.made == []


def test_passing_trouble_is_tried_again(metadata_of: Callable[..., Metadata]) -> None:
    author = Author()
    author.refusals.extend([StreamTimeout("slow"), ConnectionError("reset")])
    assert len(metadata_of(author).partitions()) == 1
    assert author.looked_up == 3


def test_final_error_names_operation_attempts_and_time(
    metadata_of: Callable[..., Metadata],
) -> None:
    author = Author()
    author.refusals.extend(ConnectionFailed("away") for _ in range(9))
    with pytest.raises(ConnectionFailed) as caught:
        metadata_of(author, retry__max__attempts="3").partitions()
    assert caught.value.what == (
        "fetch partitions failed after 3 attempts in 0.0 s: away"
    )
    assert caught.value.attempts == 3


def test_attempts_end_with_the_connection_timeout(
    metadata_of: Callable[..., Metadata],
) -> None:
    author = Author()
    author.refusals.extend(ConnectionFailed("away") for _ in range(999))
    options = {
        "stream__script__connection__timeout__millis": "1000",
        "retry__max__attempts": "1000",
        "retry__initial__millis": "400",
        "retry__max__millis": "400",
    }
    with pytest.raises(ConnectionFailed) as caught:
        metadata_of(author, **options).partitions()
    assert 2 < (caught.value.attempts or 0) < 40


def test_missing_latest_of_a_replayable_source_is_partial(
    metadata_of: Callable[..., Metadata],
) -> None:
    author = Author()
    author.infos = [PartitionInfo(PARTITION_0, 0, 5), PartitionInfo(FAR, 0, None)]
    with pytest.raises(PartialMetadata) as caught:
        metadata_of(author).partitions()
    assert caught.value.partition == FAR
    assert author.looked_up == 5


def test_partial_answer_that_heals_is_no_error(
    metadata_of: Callable[..., Metadata],
) -> None:
    author = Author()
    metadata = metadata_of(author)
    metadata.partitions()
    whole = author.infos
    answers: list[list[PartitionInfo]] = [[], []]

    class Healing(list[PartitionInfo]):
        def __iter__(self) -> Iterator[PartitionInfo]:
            return iter(answers.pop() if answers else whole)

    author.infos = Healing()
    assert [i.state for i in metadata.partitions()] == [PartitionState.ACTIVE]
    assert author.looked_up == 4


def test_unknown_latest_is_fine_where_nothing_can_be_replayed(
    metadata_of: Callable[..., Metadata],
) -> None:
    infos = metadata_of(Author(latest=None)).partitions()
    assert infos == [PartitionInfo(PARTITION_0, 0, None)]


@pytest.mark.parametrize(
    ("infos", "what"),
    [
        ([PartitionInfo(PARTITION_0, 6, 5)], "rule M3: earliest 6 is beyond latest 5"),
        ([PartitionInfo(PARTITION_0, -1, 5)], "rule M3: earliest is -1"),
        (
            [PartitionInfo(PARTITION_0, 0, 5), PartitionInfo(PARTITION_0, 0, 6)],
            "rule M1: the partition was returned twice",
        ),
    ],
)
def test_answer_that_contradicts_itself_is_refused_at_once(
    metadata_of: Callable[..., Metadata], infos: list[PartitionInfo], what: str
) -> None:
    author = Author()
    author.infos = infos
    with pytest.raises(ContractBroken) as caught:
        metadata_of(author).partitions()
    assert (caught.value.what, caught.value.partition) == (what, PARTITION_0)
    assert author.looked_up == 1


def test_missing_partition_is_vanished_in_each_result(
    metadata_of: Callable[..., Metadata],
) -> None:
    author = Author()
    author.infos = [
        PartitionInfo(PARTITION_0, 0, 5),
        PartitionInfo(FAR, 1, 9, incarnation="a"),
    ]
    metadata = metadata_of(author)
    metadata.partitions()
    del author.infos[1]
    gone = PartitionInfo(FAR, 1, 9, PartitionState.VANISHED, "a")
    for _ in range(2):
        assert metadata.partitions() == [PartitionInfo(PARTITION_0, 0, 5), gone]


def test_partitions_of_a_position_are_known(
    metadata_of: Callable[..., Metadata],
) -> None:
    infos = metadata_of(Author()).partitions(known=Position({FAR: 7}))
    states = {info.partition: info.state for info in infos}
    assert states == {PARTITION_0: PartitionState.ACTIVE, FAR: PartitionState.VANISHED}


def test_one_partition_that_is_not_there_is_an_error(
    metadata_of: Callable[..., Metadata],
) -> None:
    with pytest.raises(PartitionVanished) as caught:
        metadata_of(Author()).info(FAR)
    assert caught.value.partition == FAR


def test_asking_consumes_nothing(metadata_of: Callable[..., Metadata]) -> None:
    author = Author()
    author.times = {PARTITION_0: 3}
    metadata = metadata_of(author)
    metadata.partitions()
    metadata.info(PARTITION_0)
    metadata.schema()
    metadata.offsets_at(0, [PARTITION_0])
    metadata.lag(Position())
    assert author.made == []


# --- by time --------------------------------------------------------------------------


def test_offsets_by_time_answer_exactly_what_was_asked(
    metadata_of: Callable[..., Metadata],
) -> None:
    author = Author()
    author.times = {PARTITION_0: 3, FAR: None}
    metadata = metadata_of(author)
    assert metadata.offsets_at(5, [PARTITION_0]) == {PARTITION_0: 3}
    assert metadata.offsets_at(5, [PARTITION_0, FAR]) == {PARTITION_0: 3, FAR: None}


def test_missing_offset_by_time_is_partial(
    metadata_of: Callable[..., Metadata],
) -> None:
    author = Author()
    author.times = {PARTITION_0: 3}
    with pytest.raises(PartialMetadata) as caught:
        metadata_of(author).offsets_at(5, [PARTITION_0, FAR])
    assert caught.value.what.endswith("no offset by time for 1 of 2 partitions")
    assert caught.value.partition == FAR


# --- schema ---------------------------------------------------------------------------


def test_empty_stream_has_its_schema(metadata_of: Callable[..., Metadata]) -> None:
    author = Author(latest=0, schema=SCHEMA.with_metadata({"made": "here"}))
    schema = metadata_of(author).schema()
    assert schema.equals(SCHEMA, check_metadata=True)


def test_schema_is_declared_where_the_source_has_none(
    metadata_of: Callable[..., Metadata],
) -> None:
    with pytest.raises(SchemaUnknown) as caught:
        metadata_of(Author(schema=None)).schema()
    assert caught.value.remedy == "declare one with the option `schema`"
    declared = metadata_of(Author(schema=None), schema="id bigint not null")
    assert declared.schema() == SCHEMA


def test_topics_of_different_schemas_are_no_stream(
    metadata_of: Callable[..., Metadata],
) -> None:
    author = several("a", "b")
    author.schemas["b"] = pa.schema([("other", pa.int8())])
    with pytest.raises(ConfigError) as caught:
        metadata_of(author, subscribe="a,b").schema()
    assert caught.value.what == "the topics of this stream have different schemas"


# --- topics ---------------------------------------------------------------------------


def topics_of(infos: list[PartitionInfo]) -> list[tuple[str, PartitionState]]:
    return [(info.partition.topic, info.state) for info in infos]


def test_subscribed_topic_that_never_was_is_reported(
    metadata_of: Callable[..., Metadata],
) -> None:
    with pytest.raises(TopicNotFound) as caught:
        metadata_of(several("a"), subscribe="a,b").partitions()
    assert caught.value.what == "topic 'b' does not exist"


def test_pattern_matches_whole_names(metadata_of: Callable[..., Metadata]) -> None:
    metadata = metadata_of(several("ab", "abc", "b"), subscribePattern="a.")
    assert metadata.topics() == ["ab"]
    assert (metadata.covers("ax"), metadata.covers("axx")) == (True, False)


def test_deleted_topic_vanishes_and_other_topics_stay(
    metadata_of: Callable[..., Metadata],
) -> None:
    author = several("a", "b")
    metadata = metadata_of(author, subscribe="a,b")
    metadata.partitions()
    author.topics, author.infos = ["a"], author.infos[:1]
    expected = [("a", PartitionState.ACTIVE), ("b", PartitionState.VANISHED)]
    assert topics_of(metadata.partitions()) == expected


def test_all_topics_deleted_have_all_vanished(
    metadata_of: Callable[..., Metadata],
) -> None:
    author = several("a", "b")
    metadata = metadata_of(author, subscribePattern="[ab]")
    metadata.partitions()
    author.topics, author.infos = [], []
    states = {state for _, state in topics_of(metadata.partitions())}
    assert states == {PartitionState.VANISHED}


def test_assigned_partitions_are_the_only_ones(
    metadata_of: Callable[..., Metadata],
) -> None:
    author = Author()
    author.infos = [PartitionInfo(Partition(TOPIC, n), 0, 5) for n in range(4)]
    chosen = metadata_of(author, assign='{"script": [1, 3]}').partitions()
    assert [info.partition.id for info in chosen] == [1, 3]
    with pytest.raises(TopicNotFound) as caught:
        metadata_of(author, assign='{"script": [1, 9]}').partitions()
    assert caught.value.what == "assigned partition script-9 does not exist"


# --- M7: lag --------------------------------------------------------------------------


def test_lag_is_latest_less_next(metadata_of: Callable[..., Metadata]) -> None:
    author = Author()
    author.infos = [PartitionInfo(PARTITION_0, 2, 9), PartitionInfo(FAR, 4, 9)]
    metadata = metadata_of(author)
    assert metadata.lag(Position({PARTITION_0: 9})) == {PARTITION_0: 0, FAR: 5}
    author.infos[0] = PartitionInfo(PARTITION_0, 2, 12)
    assert metadata.lag(Position({PARTITION_0: 9}))[PARTITION_0] == 3


def test_lag_behind_an_unknown_latest_is_none(
    metadata_of: Callable[..., Metadata],
) -> None:
    assert metadata_of(Author(latest=None)).lag(Position({PARTITION_0: 3})) == {
        PARTITION_0: None
    }


# --- threads and closing --------------------------------------------------------------


def test_many_threads_ask_at_once(metadata_of: Callable[..., Metadata]) -> None:
    author = Author()
    metadata = metadata_of(author)
    failures: list[BaseException] = []

    def ask(number: int) -> None:
        try:
            for turn in range(40):
                wide = [PartitionInfo(Partition(TOPIC, n), 0, 5) for n in range(200)]
                author.infos = wide[: 100 + (number * turn) % 100]
                metadata.partitions()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert failures == []


def test_use_after_close_is_reported(metadata_of: Callable[..., Metadata]) -> None:
    metadata = metadata_of(Author())
    metadata.partitions()
    metadata.close()
    metadata.close()
    with pytest.raises(ClosedError):
        metadata.partitions()
