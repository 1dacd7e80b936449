"""Skipped ranges: joined, cut, and what of them a backfill has still to read."""

from __future__ import annotations

from streamfactory.spi import Partition, Position, Skipped
from streamfactory.wiring.reading.skipping import before, held, joined, remaining

A, B = Partition("clicks", 0), Partition("clicks", 1)


def test_range_that_begins_where_the_last_one_ends_extends_it() -> None:
    ranges = joined(joined([], Skipped(A, 0, 10, "x")), Skipped(B, 0, 5, "x"))
    assert joined(ranges, Skipped(A, 10, 30, "x")) == [
        Skipped(A, 0, 30, "x"),
        Skipped(B, 0, 5, "x"),
    ]
    apart = [Skipped(A, 11, 30, "x"), Skipped(A, 10, 30, "y")]
    assert [len(joined(ranges, one)) for one in apart] == [3, 3]


def test_backfill_reads_what_is_behind_its_position() -> None:
    ranges = [Skipped(A, 0, 10, "x"), Skipped(A, 20, 30, "x"), Skipped(B, 5, 6)]
    assert remaining(ranges, Position()) == tuple(ranges)
    done = Position({A: 23, B: 6}, {A: "x"})
    assert remaining(ranges, done) == (Skipped(A, 23, 30, "x"),)
    assert remaining(ranges, Position({A: 10}, {A: "x"})) == tuple(ranges[1:])
    assert remaining(ranges, Position({A: 30}, {A: "x"})) == (ranges[2],)


def test_backfill_is_done_with_earlier_incarnations_and_not_with_later_ones() -> None:
    old, new = Skipped(A, 100, 200, "x"), Skipped(A, 0, 50, "y")
    assert remaining([old, new], Position({A: 200}, {A: "x"})) == (new,)
    assert remaining([old, new], Position({A: 10}, {A: "y"})) == (
        Skipped(A, 10, 50, "y"),
    )
    # The copy has removed the ranges of "x", which the backfill has read.
    assert remaining([new], Position({A: 200}, {A: "x"})) == (new,)


def test_offsets_that_are_read_again_are_no_longer_skipped() -> None:
    ranges = [Skipped(A, 0, 10, "x"), Skipped(A, 20, 30, "x"), Skipped(B, 20, 30, "x")]
    assert before(ranges, A, "x", 25) == [
        ranges[0],
        Skipped(A, 20, 25, "x"),
        ranges[2],
    ]
    assert before(ranges, A, "x", 20) == [ranges[0], ranges[2]]
    assert before(ranges, A, "y", 0) == ranges


def test_source_keeps_what_a_backfill_has_to_read() -> None:
    position = Position({A: 40, B: 7}, {A: "x"}).skipping(
        [Skipped(A, 5, 10, "x"), Skipped(A, 20, 30, "x")]
    )
    assert held(position) == Position({A: 5, B: 7}, {A: "x"})
    recreated = Position({A: 3}, {A: "y"}).skipping([Skipped(A, 0, 10, "x")])
    assert held(recreated) == Position({A: 3}, {A: "y"})
