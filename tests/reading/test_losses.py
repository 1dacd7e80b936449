"""R7, R8: starts that are gone, gaps, incarnations; under each policy."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.specimens import PARTITION_0, Author, rows, sparse

from streamfactory.spi import (
    BatchState,
    ConnectionFailed,
    ContractBroken,
    Fetched,
    IncarnationChanged,
    Loss,
    OffsetOutOfRange,
    PartitionInfo,
    PartitionVanished,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.wiring.reading.reader import Reader
    from streamfactory.wiring.reading.source import Source

    Readers = Callable[..., Reader]

ROWS_OF_ANOTHER_LIFE = rows(0, 3, incarnation="b")


def at(author: Author, earliest: int, latest: int | None) -> Author:
    author.bounds(earliest, latest)
    return author


def source_of(author: Author, policy: str = "fail") -> Source:
    return author.source(out__of__range=policy)


def refusing(start: int, end: int | None, limits: object) -> Fetched:
    msg = "gone"
    raise OffsetOutOfRange(msg, offset=start)


# --- out of range ---------------------------------------------------------------------


@pytest.mark.parametrize(("start", "cause"), [(3, "retention"), (21, "truncated")])
def test_start_out_of_range_fails_with_what_is_available(
    reader_of: Readers, start: int, cause: str
) -> None:
    reader = reader_of(at(Author(), 10, 20))
    with pytest.raises(OffsetOutOfRange) as caught:
        reader.fetch(start)
    error = caught.value
    assert (error.earliest, error.latest, error.offset) == (10, 20, start)
    assert (
        error.what
        == f"offset {start} is out of range: available are 10 to 20 ({cause})"
    )
    assert (error.stream, error.partition) == ("script:script", PARTITION_0)


@pytest.mark.parametrize("start", [10, 20])
def test_both_ends_of_what_is_held_are_in_range(reader_of: Readers, start: int) -> None:
    reader = reader_of(at(Author(), 10, 20))
    assert reader.fetch(start, timeout=0).losses == ()


@pytest.mark.parametrize(
    ("policy", "start", "goes_on", "end"),
    [
        ("earliest", 3, 10, 10),
        ("earliest", 25, 10, None),
        ("latest", 3, 20, 20),
        ("latest", 25, 20, None),
    ],
)
def test_policy_continues_with_a_loss_record(
    reader_of: Readers, policy: str, start: int, goes_on: int, end: int | None
) -> None:
    author = at(Author(rows(goes_on, 1)), 10, 20)
    reader = reader_of(author, out__of__range=policy)
    batch = reader.fetch(start)
    cause = "retention" if start < 10 else "truncated"
    assert batch.losses == (Loss(PARTITION_0, start, end, cause),)
    assert (batch.first_offset, author.starts) == (goes_on, [goes_on])
    assert reader.counters.losses == list(batch.losses)
    assert reader.fetch(batch.next_offset, timeout=0).losses == ()


def test_unknown_latest_bounds_nothing(reader_of: Readers) -> None:
    author = Author(rows(70, 1), latest=None)
    assert reader_of(author).fetch(70).num_rows == 1


def test_planned_range_that_expired_is_skipped_and_its_loss_ends_with_it(
    reader_of: Readers,
) -> None:
    author = at(Author(), 10, 20)
    reader = reader_of(author, out__of__range="earliest")
    batch = reader.fetch(3, end=6)
    assert batch.losses == (Loss(PARTITION_0, 3, 6, "retention"),)
    assert (batch.next_offset, batch.state) == (6, BatchState.CAUGHT_UP)
    assert author.calls == []


def test_range_reversed_by_truncation_is_loss_not_a_mistake(
    reader_of: Readers,
) -> None:
    with pytest.raises(OffsetOutOfRange) as caught:
        reader_of(at(Author(), 0, 5)).fetch(8, end=5)
    assert caught.value.latest == 5


def test_latest_that_fell_below_the_reader_is_loss(reader_of: Readers) -> None:
    author = at(Author(rows(0, 8), Fetched(None, 8, latest=5)), 0, 8)
    reader = reader_of(author)
    reader.fetch(0)
    author.bounds(0, 5)
    with pytest.raises(OffsetOutOfRange) as caught:
        reader.fetch(8)
    assert (caught.value.offset, caught.value.latest) == (8, 5)


def test_latest_that_only_lags_is_none(reader_of: Readers) -> None:
    author = at(Author(rows(0, 8), Fetched(None, 8, latest=5)), 0, 8)
    reader = reader_of(author)
    reader.fetch(0)
    assert reader.fetch(8, timeout=0).losses == ()


def test_refusal_by_the_source_fails(reader_of: Readers) -> None:
    with pytest.raises(OffsetOutOfRange) as caught:
        reader_of(at(Author(refusing), 0, 20)).fetch(4)
    assert "refused by the source" in caught.value.what


def test_start_that_expired_meanwhile_follows_the_policy(
    reader_of: Readers,
) -> None:
    author = at(Author(refusing, rows(10, 1)), 0, 20)
    reader = reader_of(author, out__of__range="earliest")

    def expiring(*_: object) -> Fetched:
        author.bounds(10, 20)
        return rows(4, 1)

    author.steps.appendleft(expiring)
    assert reader.fetch(4).next_offset == 5
    moved = reader.fetch(5)
    assert moved.losses == (Loss(PARTITION_0, 5, 10, "retention"),)
    assert reader.fetch(moved.next_offset).first_offset == 10


def test_source_that_refuses_its_own_earliest_is_an_error(reader_of: Readers) -> None:
    author = at(Author(refusing), 10, 20)
    reader = reader_of(author, out__of__range="earliest")
    with pytest.raises(OffsetOutOfRange):
        reader.fetch(10)


def test_bounds_seen_earlier_are_asked_for_again_before_a_verdict() -> None:
    author = at(Author(rows(30, 1)), 0, 50)
    stale = PartitionInfo(PARTITION_0, 0, 20)
    source = source_of(author)
    reader = source.reader(PARTITION_0, info=stale)
    assert reader.fetch(30).num_rows == 1
    assert author.looked_up == 1
    reader.close()
    source.close()


def test_bounds_seen_just_now_spare_the_look_up() -> None:
    author = at(Author(rows(10, 1)), 0, 50)
    source = source_of(author)
    reader = source.reader(PARTITION_0, info=PartitionInfo(PARTITION_0, 0, 20))
    reader.fetch(10)
    assert author.looked_up == 0
    reader.close()
    source.close()


def test_missing_partition_is_reported(reader_of: Readers) -> None:
    author = Author()
    author.infos = []
    with pytest.raises(PartitionVanished) as caught:
        reader_of(author).fetch(0)
    assert caught.value.partition == PARTITION_0


# --- gaps -----------------------------------------------------------------------------


@pytest.mark.parametrize("held_from", [None, 0, 4])
def test_gap_is_no_loss(reader_of: Readers, held_from: int | None) -> None:
    author = Author(sparse(9, held_from=held_from))
    batch = reader_of(author).fetch(4)
    assert (batch.first_offset, batch.losses) == (9, ())
    # Once for the start; a gap costs another look-up only where nothing proves it.
    assert author.looked_up == (2 if held_from is None else 1)


def test_rows_taken_away_before_the_first_are_loss(reader_of: Readers) -> None:
    author = Author(sparse(9, held_from=7))
    with pytest.raises(OffsetOutOfRange) as caught:
        reader_of(author).fetch(4)
    assert caught.value.what == "offsets 4 to 7 were removed while reading"
    assert caught.value.earliest == 7


def test_rows_taken_away_are_recorded_by_the_policy(reader_of: Readers) -> None:
    author = Author(sparse(9, held_from=30))
    batch = reader_of(author, out__of__range="earliest").fetch(4)
    assert batch.losses == (Loss(PARTITION_0, 4, 9, "retention"),)
    assert batch.first_offset == 9


def test_loss_while_reading_ends_with_the_range(reader_of: Readers) -> None:
    author = Author(sparse(9, held_from=9))
    batch = reader_of(author, out__of__range="earliest").fetch(4, end=6)
    assert batch.losses == (Loss(PARTITION_0, 4, 6, "retention"),)
    assert batch.next_offset == 6


# --- incarnations ---------------------------------------------------------------------


def reborn(*steps: object) -> Author:
    author = Author(*steps)  # type: ignore[arg-type]
    author.bounds(0, 100, "b")
    return author


def test_start_of_another_incarnation_is_refused() -> None:
    source = source_of(reborn())
    reader = source.reader(PARTITION_0, incarnation="a")
    with pytest.raises(IncarnationChanged) as caught:
        reader.fetch(5)
    error = caught.value
    assert (error.expected, error.found, error.offset) == ("a", "b", 5)
    assert error.what == "topic 'script' was recreated: expected id 'a', found 'b'"
    reader.close()
    source.close()


@pytest.mark.parametrize(("policy", "goes_on"), [("earliest", 0), ("latest", 100)])
def test_start_of_another_incarnation_follows_the_policy(
    policy: str, goes_on: int
) -> None:
    source = source_of(reborn(rows(goes_on, 1)), policy)
    reader = source.reader(PARTITION_0, incarnation="a")
    batch = reader.fetch(5)
    assert batch.losses == (Loss(PARTITION_0, 5, None, "incarnation"),)
    assert (batch.first_offset, batch.incarnation) == (goes_on, "b")
    reader.close()
    source.close()


def test_empty_range_of_a_replaced_incarnation_is_reported() -> None:
    author = reborn()
    source = source_of(author)
    reader = source.reader(PARTITION_0, incarnation="a", info=author.infos[0])
    with pytest.raises(IncarnationChanged):
        reader.fetch(5, end=5)
    reader.close()
    source.close()


def test_change_under_an_open_consumer_is_reported(reader_of: Readers) -> None:
    author = Author(rows(0, 2, incarnation="a"), Fetched(None, 0, incarnation="b"))
    reader = reader_of(author)
    reader.fetch(0)
    assert reader.incarnation == "a"
    with pytest.raises(IncarnationChanged) as caught:
        reader.fetch(2)
    assert (caught.value.expected, caught.value.found) == ("a", "b")


@pytest.mark.parametrize("told_by_metadata", [True, False])
def test_change_under_an_open_consumer_follows_the_policy(
    reader_of: Readers, told_by_metadata: bool
) -> None:
    author = Author(
        rows(7, 2, incarnation="a"),
        Fetched(None, 0, incarnation="b"),
        rows(0, 1, incarnation="b"),
    )
    reader = reader_of(author, out__of__range="earliest")
    reader.fetch(7)
    author.bounds(0, 1, "b" if told_by_metadata else None)
    changed = reader.fetch(9)
    assert changed.losses == (Loss(PARTITION_0, 9, None, "incarnation"),)
    assert (changed.next_offset, changed.incarnation) == (0, "b")
    after = reader.fetch(0)
    assert (after.first_offset, after.losses) == (0, ())


def test_rows_of_a_new_incarnation_from_the_same_consumer_break_the_contract(
    reader_of: Readers,
) -> None:
    author = Author(rows(0, 2, incarnation="a"), rows(2, 2, incarnation="b"))
    reader = reader_of(author, out__of__range="earliest")
    reader.fetch(0)
    with pytest.raises(ContractBroken) as caught:
        reader.fetch(2)
    assert caught.value.what == "rule R7: a result with rows has a new incarnation"


def test_recreated_consumer_may_find_a_new_incarnation(reader_of: Readers) -> None:
    reset = ConnectionFailed("reset")
    author = Author(
        rows(0, 2, incarnation="a"),
        reset,
        rows(2, 2, incarnation="b"),
        ROWS_OF_ANOTHER_LIFE,
    )
    reader = reader_of(author, out__of__range="earliest")
    reader.fetch(0)
    changed = reader.fetch(2)
    assert changed.losses == (Loss(PARTITION_0, 2, None, "incarnation"),)
    assert changed.num_rows == 0
    assert reader.fetch(2).first_offset == 0


def test_failure_after_a_change_does_not_hide_it(reader_of: Readers) -> None:
    author = Author(
        rows(0, 8, incarnation="a"),
        *[Fetched(None, 0, incarnation="b")] * 2,
        rows(0, 1, incarnation="b"),
    )
    options = {"out__of__range": "earliest", "retry__max__attempts": "1"}
    reader = reader_of(author, **options)
    reader.fetch(0)
    author.bounds(0, 9, "b")
    author.refusals.append(ConnectionFailed("metadata"))
    with pytest.raises(ConnectionFailed):
        reader.fetch(8)
    assert reader.incarnation == "a"
    assert reader.fetch(8).losses == (Loss(PARTITION_0, 8, None, "incarnation"),)


def test_verify_finds_a_change_that_no_result_reported(reader_of: Readers) -> None:
    author = Author(rows(0, 2))
    author.bounds(0, 10, "a")
    reader = reader_of(author)
    reader.fetch(0)
    reader.verify()
    author.infos = [replace(author.infos[0], incarnation="b")]
    with pytest.raises(IncarnationChanged) as caught:
        reader.verify()
    assert (caught.value.expected, caught.value.found) == ("a", "b")


def test_sources_without_incarnations_are_not_verified(reader_of: Readers) -> None:
    author = Author(rows(0, 2), rows(2, 2, incarnation="a"))
    reader = reader_of(author)
    assert [reader.fetch(0).incarnation, reader.fetch(2).incarnation] == [None, "a"]
