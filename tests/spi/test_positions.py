"""Positions: canonical text, readable for ever, refused in words (rules P1 and P2)."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamfactory.spi import Partition, Position, PositionRefused, Skipped

FROZEN = Path(__file__).parents[1] / "data" / "positions"

partitions = st.builds(
    Partition, st.text(min_size=1, max_size=8), st.integers(0, 2**31 - 1)
)
offsets = st.dictionaries(partitions, st.integers(0, 2**63 - 1), max_size=12)


def _range(at: Partition, start: int, size: int, incarnation: str | None) -> Skipped:
    return Skipped(at, start, start + size, incarnation)


skipped = st.lists(
    st.builds(
        _range,
        partitions,
        st.integers(0, 2**62),
        st.integers(1, 2**62),
        st.none() | st.text(max_size=4),
    ),
    max_size=3,
)


@st.composite
def positions(draw: st.DrawFn) -> Position:
    given_offsets = draw(offsets)
    ids = st.text(max_size=4)
    incarnations = {p: draw(ids) for p in given_offsets if draw(st.booleans())}
    return Position(given_offsets, incarnations).skipping(draw(skipped))


def reversed_by_partition(ranges: tuple[Skipped, ...]) -> list[Skipped]:
    """The partitions in another order, the ranges of each in their own."""
    places = sorted({one.partition for one in ranges}, reverse=True)
    return [one for place in places for one in ranges if one.partition == place]


# --- the text -----------------------------------------------------------------------


@given(positions())
def test_a_position_comes_back_from_its_text(position: Position) -> None:
    text = position.to_json()
    read = Position.from_json(text)
    assert read == position
    assert read.incarnations == position.incarnations
    assert read.skipped == position.skipped
    assert read.to_json() == text
    assert "\n" not in text
    assert text.isascii()


@given(positions(), st.randoms())
def test_equal_positions_are_equal_text(position: Position, random: object) -> None:
    shuffled = list(position.items())
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    other = Position(dict(shuffled), position.incarnations)
    other = other.skipping(reversed_by_partition(position.skipped))
    assert other == position
    assert other.to_json() == position.to_json()
    assert hash(other) == hash(position)


@given(positions(), positions())
def test_unequal_positions_are_unequal_text(one: Position, other: Position) -> None:
    assert (one == other) == (one.to_json() == other.to_json())


@given(positions())
def test_a_position_pickles(position: Position) -> None:
    copy = pickle.loads(pickle.dumps(position))
    assert copy == position
    assert copy.to_json() == position.to_json()


def test_the_text_is_spark_kafkas_inside_an_envelope() -> None:
    clicks = {Partition("clicks", 10): 7, Partition("clicks", 2): 23}
    assert Position(clicks).to_json() == (
        '{"offsets":{"clicks":{"10":7,"2":23}},"version":1}'
    )


def test_an_incarnation_that_all_partitions_share_is_written_once() -> None:
    both = {Partition("clicks", 0): 23, Partition("clicks", 1): 5}
    shared = Position(both, dict.fromkeys(both, "a1"))
    assert shared.to_json() == (
        '{"incarnations":{"clicks":"a1"},"offsets":{"clicks":{"0":23,"1":5}},'
        '"version":1}'
    )
    one = Position(both, {Partition("clicks", 0): "a1"})
    assert one.to_json() == (
        '{"incarnations":{"clicks":{"0":"a1"}},"offsets":{"clicks":{"0":23,"1":5}},'
        '"version":1}'
    )


def test_ten_thousand_partitions_carry_their_incarnation_once() -> None:
    many = {Partition("clicks", number): 2**40 for number in range(10_000)}
    text = Position(many, dict.fromkeys(many, "sZ9h2dUVQy6nH3zYxVv0Vw")).to_json()
    assert len(text) < 225_000
    assert text.count("sZ9h2dUVQy6nH3zYxVv0Vw") == 1
    assert len(Position.from_json(text)) == 10_000


@pytest.mark.parametrize("path", sorted(FROZEN.glob("v1_*.json")), ids=lambda p: p.stem)
def test_frozen_positions_stay_readable_and_canonical(path: Path) -> None:
    frozen = json.loads(path.read_text(encoding="utf-8"))
    position = Position(
        {Partition(t, i): offset for t, i, offset, _ in frozen["partitions"]},
        {Partition(t, i): name for t, i, _, name in frozen["partitions"] if name},
    )
    assert Position.from_json(frozen["text"]) == position
    assert position.to_json() == frozen["text"]


def test_frozen_position_with_skipped_ranges_stays_readable() -> None:
    text = FROZEN.joinpath("v2_skipped.txt").read_text(encoding="utf-8").strip()
    a, b = Partition("clicks", 0), Partition("clicks", 1)
    position = Position({a: 90, b: 5}, {a: "a1", b: "a1"}).skipping(
        [Skipped(b, 1, 2), Skipped(a, 10, 20, "a0"), Skipped(a, 5, 80, "a1")]
    )
    assert position.to_json() == text
    assert Position.from_json(text) == position


def test_there_are_frozen_positions() -> None:
    assert len(list(FROZEN.glob("v1_*.json"))) >= 4


# --- refusals -----------------------------------------------------------------------

GOOD = '{"offsets":{"clicks":{"0":23}},"version":1}'


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "not a position: '' is not JSON"),
        ("{", "not a position: '{' is not JSON"),
        (GOOD[:-1], f"not a position: {GOOD[:-1]!r} is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("null", "not a position: 'null' has no version"),
        ("[1]", "not a position: '[1]' has no version"),
        (
            '{"clicks":{"0":23}}',
            'not a position: \'{"clicks":{"0":23}}\' has no version',
        ),
        ('{"version":3}', "position has version 3, but only versions up to 2 are"),
        (
            '{"version":1,"offsets":{},"skipped":{"t":{"0":[[1,2,null]]}}}',
            "not a position: unknown key 'skipped'",
        ),
        (
            '{"version":2,"offsets":{},"skipped":{"t":{"0":7}}}',
            "not a position: 7 is not a list of skipped ranges",
        ),
        (
            '{"version":2,"offsets":{},"skipped":{"t":{"0":[[1,2]]}}}',
            "not a position: [1, 2] is not a skipped range",
        ),
        (
            '{"version":2,"offsets":{},"skipped":{"t":{"0":[[2,2,null]]}}}',
            "not a position: the skipped range [2, 2, None] is empty",
        ),
        (
            '{"version":2,"offsets":{},"skipped":{"t":{"0":[[-1,2,null]]}}}',
            "not a position: -1 is not an offset",
        ),
        (
            '{"version":2,"offsets":{},"skipped":{"t":{"0":[[1,2,3]]}}}',
            "not a position: 3 is not an incarnation",
        ),
        (
            '{"version":2,"offsets":{},"skipped":[]}',
            "not a position: [], expected an object by topic",
        ),
        (
            '{"version":"1"}',
            "not a position: version is '1', expected an integer",
        ),
        ('{"version":true}', "version is True, expected an integer"),
        ('{"version":0}', "version is 0, expected an integer"),
        ('{"version":1.0}', "version is 1.0, expected an integer"),
        ('{"version":1}', "not a position: None, expected an object by topic"),
        (
            '{"version":1,"offsets":[]}',
            "not a position: [], expected an object by topic",
        ),
        (
            '{"version":1,"offsets":{"t":3}}',
            "not a position: 't' has 3, expected an object",
        ),
        (
            '{"version":1,"offsets":{},"extra":1}',
            "not a position: unknown key 'extra'",
        ),
        (
            '{"version":1,"offsets":{},"offsets":{}}',
            "not a position: the key 'offsets' is repeated",
        ),
        (
            '{"version":1,"offsets":{"t":{"0":1,"0":2}}}',
            "not a position: the key '0' is repeated",
        ),
        (
            '{"version":1,"offsets":{"":{"0":1}}}',
            "not a position: '' has a partition '0'",
        ),
        (
            '{"version":1,"offsets":{"t":{"00":1}}}',
            "not a position: 't' has a partition '00'",
        ),
        (
            '{"version":1,"offsets":{"t":{"-1":1}}}',
            "not a position: 't' has a partition '-1'",
        ),
        (
            '{"version":1,"offsets":{"t":{"\u0663":1}}}',
            "not a position: 't' has a partition '\u0663'",
        ),
        (
            '{"version":1,"offsets":{"t":{"2147483648":1}}}',
            "not a position: 't' has a partition '2147483648'",
        ),
        ('{"version":1,"offsets":{"t":{"' + "9" * 5000 + '":1}}}', "has a partition"),
        (
            '{"version":1,"offsets":{"t":{"0":-2}}}',
            "not a position: -2 is not an offset",
        ),
        (
            '{"version":1,"offsets":{"t":{"0":true}}}',
            "not a position: True is not an offset",
        ),
        (
            '{"version":1,"offsets":{"t":{"0":1.0}}}',
            "not a position: 1.0 is not an offset",
        ),
        (
            '{"version":1,"offsets":{"t":{"0":9223372036854775808}}}',
            "not a position: 9223372036854775808 is not an offset",
        ),
        (
            '{"version":1,"offsets":{"t":{"0":1}},"incarnations":[]}',
            "not a position: incarnations is [], expected an object",
        ),
        (
            '{"version":1,"offsets":{"t":{"0":1}},"incarnations":{"t":{"0":7}}}',
            "not a position: 7 is not an incarnation",
        ),
        (
            '{"version":1,"offsets":{"t":{"0":1}},"incarnations":{"t":{"1":"a"}}}',
            "not a position: incarnation of t-1, which has no offset",
        ),
        (
            '{"version":1,"offsets":{"t":{"0":1}},"incarnations":{"u":"a"}}',
            "not a position: incarnation of u, which has no offset",
        ),
    ],
)
def test_what_is_no_position_is_refused_with_a_message(text: str, what: str) -> None:
    with pytest.raises(PositionRefused) as caught:
        Position.from_json(text)
    assert what in caught.value.what
    assert len(caught.value.what) < 200
    assert caught.value.remedy


def test_a_newer_position_names_the_remedy() -> None:
    with pytest.raises(PositionRefused) as caught:
        Position.from_json('{"version":7,"lanes":{}}')
    assert str(caught.value) == (
        "position has version 7, but only versions up to 2 are supported; "
        "upgrade streamfactory"
    )


@given(st.data())
def test_a_damaged_text_is_refused_or_means_what_it_says(data: st.DataObject) -> None:
    text = Position({Partition("clicks", 3): 12345}).to_json()
    at = data.draw(st.integers(0, len(text) - 1))
    damaged = text[:at] + data.draw(st.characters(codec="ascii")) + text[at + 1 :]
    try:
        read = Position.from_json(damaged)
    except PositionRefused:
        return
    assert len(read) <= 1
    assert Position.from_json(read.to_json()) == read


# --- values -------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [-1, 2**63])
def test_an_offset_out_of_range_never_gets_into_a_position(offset: int) -> None:
    with pytest.raises(ValueError, match="is outside") as caught:
        Position({Partition("clicks", 0): offset})
    assert str(caught.value) == (
        f"offset {offset} of clicks-0 is outside 0..9223372036854775807"
    )


def test_numbers_of_numpy_become_plain_ones() -> None:
    position = Position({Partition("clicks", np.int32(1)): np.int64(5)})  # type: ignore[arg-type, dict-item]
    assert position.to_json() == '{"offsets":{"clicks":{"1":5}},"version":1}'
    assert position == Position({Partition("clicks", 1): 5})


@pytest.mark.parametrize("number", [-1, 2**31])
def test_a_partition_id_has_31_bits(number: int) -> None:
    with pytest.raises(ValueError, match="is outside") as caught:
        Partition("clicks", number)
    assert str(caught.value) == f"partition id {number} is outside 0..2147483647"


@pytest.mark.parametrize("number", [1.0, "1", None])
def test_a_partition_id_is_a_whole_number(number: object) -> None:
    with pytest.raises(TypeError):
        Partition("clicks", number)  # type: ignore[arg-type]


def test_a_partition_needs_a_topic() -> None:
    with pytest.raises(ValueError, match="requires the name") as caught:
        Partition("", 0)
    assert str(caught.value) == "a partition requires the name of its topic"


def test_partitions_sort_by_topic_and_number() -> None:
    listed = [Partition("b", 0), Partition("a", 10), Partition("a", 9)]
    assert [str(p) for p in sorted(listed)] == ["a-9", "a-10", "b-0"]


def test_moving_and_merging_leave_the_original() -> None:
    a, b = Partition("t", 0), Partition("t", 1)
    first = Position({a: 1, b: 2}, {a: "x", b: "x"})
    moved = first.with_offset(a, 9)
    assert (moved[a], moved[b], first[a]) == (9, 2, 1)
    assert moved.incarnations == {a: "x", b: "x"}
    merged = first.merge(Position({b: 5}))
    assert dict(merged) == {a: 1, b: 5}
    assert merged.incarnations == {a: "x"}
    assert dict(first.only({b})) == {b: 2}


def test_skipped_ranges_stay_with_their_partitions() -> None:
    a, b = Partition("t", 0), Partition("t", 1)
    of_a, of_b = Skipped(a, 0, 5), Skipped(b, 1, 2)
    first = Position({a: 9, b: 2}).skipping([of_b, of_a])
    assert first.skipped == (of_a, of_b)
    assert first.with_offset(a, 10).skipped == (of_a, of_b)
    assert first.only({b}).skipped == (of_b,)
    assert first.merge(Position({b: 3})).skipped == (of_a,)
    assert Position({b: 3}).merge(first).skipped == (of_a, of_b)
    assert first != Position({a: 9, b: 2})
    assert first.skipping([]) == Position({a: 9, b: 2})
    # The partition was removed: its range is a loss that a backfill has to report.
    removed = Position().skipping([of_a])
    assert removed.merge(Position({b: 3})).skipped == (of_a,)
    assert Position({b: 3}).merge(removed) == Position({b: 3}).skipping([of_a])
    assert removed.merge(Position()) == Position().merge(removed) == removed


def test_offsets_of_a_skipped_range_may_be_numbers_of_numpy() -> None:
    a = Partition("t", 0)
    one = Skipped(a, np.int64(1), np.int64(5))  # type: ignore[arg-type]
    text = Position({a: 9}).skipping([one]).to_json()
    assert text == Position({a: 9}).skipping([Skipped(a, 1, 5)]).to_json()


def test_empty_range_is_refused() -> None:
    with pytest.raises(ValueError, match="the skipped range 5 to 5 of t-0 is empty"):
        Skipped(Partition("t", 0), 5, 5)


def test_an_incarnation_without_an_offset_is_dropped() -> None:
    a, b = Partition("t", 0), Partition("t", 1)
    assert Position({a: 1}, {a: "x", b: "x"}) == Position({a: 1}, {a: "x"})


def test_a_position_is_not_equal_to_a_plain_map() -> None:
    a = Partition("t", 0)
    assert Position({a: 1}) != {a: 1}
    assert {Position({a: 1}), Position({a: 1})} == {Position({a: 1})}


@pytest.mark.parametrize("inner", ['{"a":', "["])
def test_a_text_of_many_tables_is_refused_before_it_is_parsed(inner: str) -> None:
    text = '{"version":1,"offsets":{},"a":[' + ",".join([inner * 40] * 6_000)
    with pytest.raises(PositionRefused, match="more than 200000 tables"):
        Position.from_json(text)


def test_a_position_of_many_topics_is_parsed() -> None:
    position = Position({Partition(f"t{at}", 0): at for at in range(50_000)})
    assert Position.from_json(position.to_json()) == position
