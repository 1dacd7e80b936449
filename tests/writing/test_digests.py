"""How a repeated epoch is recognised: by its rows, and by its content on request."""

from __future__ import annotations

import random
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.everytype import EVERY_TYPE
from tests.proving.drivers import REPOSITORY

from streamfactory.spi import (
    EpochMismatch,
    Partition,
    Position,
    Summary,
    envelope_schema,
)
from streamfactory.wiring.streams.opening import open_sink
from streamfactory.wiring.writing.digests import ALGORITHM, MODULUS, digest_columns
from streamfactory.wiring.writing.summary import Summing, difference, incomparable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from streamfactory.wiring.writing.sink import Sink


def digest(*columns: Iterable[Any]) -> int:
    return digest_columns({f"c{n}": column for n, column in enumerate(columns)})


# --- the digest -----------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY_TYPE)
def test_parts_in_any_order_add_up_to_the_whole(name: str) -> None:
    column = EVERY_TYPE[name]
    count = len(column)
    numbers = pa.array(range(count))
    parts = [(column.slice(at, 1), numbers.slice(at, 1)) for at in range(count)]
    random.Random(7).shuffle(parts)
    total = sum(digest(*part) for part in parts) % MODULUS
    assert total == digest(column, numbers)


@pytest.mark.parametrize("name", EVERY_TYPE)
def test_every_other_value_is_another_digest(name: str) -> None:
    column = EVERY_TYPE[name]
    ones = {digest(column.slice(at, 1)) for at in range(len(column))}
    assert len(ones) == {"null": 1, "run_end_encoded": 3}.get(name, len(column))


def test_value_counts_with_the_row_and_the_column_it_is_in() -> None:
    ones, twos = pa.array([1, 2]), pa.array([2, 1])
    assert digest(ones, ones) != digest(ones, twos)
    assert digest(ones, pa.array([3, 3])) != digest(pa.array([3, 3]), ones)
    assert digest_columns({"a": ones, "b": twos}) == digest_columns(
        {"b": twos, "a": ones}
    )


def test_multiplicity_counts() -> None:
    assert digest(pa.array([1, 1, 2])) != digest(pa.array([1, 2, 2]))
    assert digest(pa.array([], pa.int64())) == 0


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["ab"], ["ba"]),
        (["\0"], ["\0\0"]),
        (["12345678abcdefgh"], ["abcdefgh12345678"]),
        ([[1, 2]], [[2, 1]]),
        ([[[1], []]], [[[], [1]]]),
        ([0.0], [-0.0]),
        ([None], [0]),
        ([1.0, 4.0], [2.0, 3.0]),
    ],
)
def test_content_of_equal_sums_and_lengths_is_distinguished(
    one: list[Any], other: list[Any]
) -> None:
    kind = pa.array(one if one != [None] else other).type
    assert digest(pa.array(one, kind)) != digest(pa.array(other, kind))


@pytest.mark.parametrize(
    ("values", "kinds"),
    [
        (["a", None, "x" * 99], [pa.large_string(), pa.string_view()]),
        ([b"a", None], [pa.large_binary(), pa.binary_view()]),
        ([[1], None, []], [pa.large_list(pa.int64()), pa.list_view(pa.int64())]),
        ([[1, 2], None], [pa.list_(pa.int64(), 2)]),
        (["a", None, "a"], [pa.dictionary(pa.int8(), pa.string())]),
        (
            [["a"], ["b", None, "a"], None],
            [pa.list_(pa.dictionary(pa.int8(), pa.string()))],
        ),
    ],
)
def test_encoding_of_a_value_does_not_count(
    values: list[Any], kinds: list[pa.DataType]
) -> None:
    plain = pa.array(values)
    for kind in kinds:
        assert digest(pa.array(values, kind)) == digest(plain)


def test_runs_unions_and_maps_count_by_their_values() -> None:
    runs = pa.RunEndEncodedArray.from_arrays([2, 3], pa.array(["a", None]))
    assert digest(runs) == digest(pa.array(["a", "a", None]))
    assert digest(EVERY_TYPE["sparse union"]) == digest(EVERY_TYPE["dense union"])
    kind = pa.map_(pa.string(), pa.int64())
    one = pa.array([[("a", 1), ("b", 2)]], kind)
    assert digest(one) == digest(pa.array([[("b", 2), ("a", 1)]], kind))
    assert digest(one) != digest(pa.array([[("a", 2), ("b", 1)]], kind))


def test_not_a_number_is_one_value_whatever_its_bits() -> None:
    bits = pa.array([0x7FF8000000000000, 0x7FF8DEADBEEF0000, -1], pa.int64())
    one = [digest(bits.slice(at, 1).view(pa.float64())) for at in range(3)]
    assert len(set(one)) == 1


def test_what_lies_beneath_a_null_does_not_count() -> None:
    octets = pa.array([7, 8], pa.int64()).buffers()[1]
    mask = pa.array([True, False]).buffers()[1]
    hidden = pa.Array.from_buffers(pa.int64(), 2, [mask, octets])
    assert digest(hidden) == digest(pa.array([7, None]))


def test_large_values_and_many_rows_are_hashed_in_blocks() -> None:
    """Blocks and slices end within values, lists and rows; the digest is the same."""
    letters = pa.array(["x" * n for n in (300_000, 0, 7, 262_145, 9)])
    lists = pa.array([list(range(40_000)), [], [1], list(range(70_000)), None])
    whole = digest(letters, lists)
    ones = (digest(letters.slice(n, 1), lists.slice(n, 1)) for n in range(5))
    assert sum(ones) % MODULUS == whole
    numbers = pa.array(range(20_001))
    halves = digest(numbers.slice(0, 8191)) + digest(numbers.slice(8191))
    assert halves % MODULUS == digest(numbers)


def test_dictionary_larger_than_its_rows_is_hashed_by_what_is_used() -> None:
    words = pa.array([f"w{n}" for n in range(1000)])
    few = pa.DictionaryArray.from_arrays(pa.array([999, 0, 999], pa.int16()), words)
    assert digest(few) == digest(pa.array(["w999", "w0", "w999"]))


_FROZEN = """
import sys
from tests.everytype import EVERY_TYPE
from streamfactory.wiring.writing.digests import digest_columns
total = sum(digest_columns({name: column}) for name, column in EVERY_TYPE.items())
print(f"{total % 2**128:032x}")
"""


def test_digest_is_the_same_in_every_process_and_version() -> None:
    """Sinks store it: what changes this number needs another name of the algorithm."""
    found = subprocess.run(
        [sys.executable, "-c", _FROZEN],
        capture_output=True,
        text=True,
        check=True,
        cwd=REPOSITORY,  # where `tests` is importable
    )
    assert ALGORITHM == "content-1"
    assert found.stdout.strip() == "5ee8fe50f40cb7f4c833b3f03bea086c"


# --- summaries ------------------------------------------------------------------


def summary(*values: int, content: bool = True) -> Summary:
    summing = Summing(content=content)
    summing.add(pa.record_batch({"n": pa.array(values, pa.int64())}), {})
    return summing.total()


def test_rows_are_compared_first_and_content_where_both_have_it() -> None:
    base = summary(1, 2)
    assert difference(summary(2, 1), base) is None
    assert difference(summary(1), base) == "1 rows instead of 2"
    assert difference(summary(0, 3), base) == "other content in as many rows"
    assert difference(summary(1, content=False), summary(7, content=False)) is None
    assert difference(summary(1), summary(7, content=False)) is None


def test_epochs_of_earlier_versions_are_compared_by_rows() -> None:
    held = Summary(2, {"n": 3, "text": 9})  # column sums
    assert incomparable(summary(1, 2), held)
    assert difference(summary(1, 2), held) is None
    assert difference(summary(1), held) == "1 rows instead of 2"
    assert not incomparable(summary(1, 2, content=False), held)
    assert not incomparable(summary(), Summary())


def test_summaries_of_tasks_add_up_below_the_modulus() -> None:
    parts = [summary(n) for n in range(50)]
    assert sum(parts, Summary()) == summary(*range(50))


# --- through a sink -------------------------------------------------------------


def put(sink: Sink, rows: pa.Table, epoch: int = 0) -> bool:
    return sink.put(rows, writer_id="w", epoch=epoch)


def test_content_is_not_digested_unless_it_is_compared(
    sink_factory: Callable[..., Sink],
) -> None:
    rows = pa.record_batch({"n": [1]})
    for options, writer_id, digested in (
        ({}, "w", False),
        ({"epoch.mismatch": "fail"}, None, False),
        ({"epoch.mismatch": "fail"}, "w", True),
    ):
        sink = sink_factory(options)
        with closing(sink.writer(rows.schema, writer_id=writer_id)) as writer:
            writer.write(rows)
            assert bool(writer.commit().summary.sums) is digested


@pytest.mark.parametrize("name", EVERY_TYPE)
def test_other_content_of_every_type_is_refused_when_asked_for(
    sink_factory: Callable[..., Sink], name: str
) -> None:
    rows = pa.table({"v": EVERY_TYPE[name], "n": range(len(EVERY_TYPE[name]))})
    sink = sink_factory({"epoch.mismatch": "fail"})
    assert put(sink, rows)
    assert not put(sink, pa.concat_tables([rows.slice(1), rows.slice(0, 1)]))
    first, last = rows.slice(0, 1), rows.slice(len(rows) - 1)
    with pytest.raises(EpochMismatch, match="other content in as many rows"):
        put(sink, pa.concat_tables([rows.slice(1), last]))
    if name != "null":  # the same column `n`, and one other value
        other = pa.concat_tables([first, first.set_column(1, "n", last["n"])])
        between = rows.slice(1, len(rows) - 2)
        with pytest.raises(EpochMismatch, match="other content in as many rows"):
            put(sink, pa.concat_tables([other, between]))


def test_text_of_equal_lengths_and_numbers_of_equal_sums_are_other_content(
    sink_factory: Callable[..., Sink], caplog: pytest.LogCaptureFixture
) -> None:
    rows = pa.table({"text": ["ab", "cd"], "n": [1, 4]})
    other = pa.table({"text": ["xy", "zz"], "n": [2, 3]})
    strict = sink_factory({"epoch.mismatch": "fail"})
    assert put(strict, rows)
    with pytest.raises(EpochMismatch):
        put(strict, other)
    assert put(sink_factory(), rows, epoch=1)
    assert not put(sink_factory(), other, epoch=1)  # by default rows are counted
    assert caplog.records == []


def test_epoch_without_a_digest_is_said_not_to_be_compared(
    sink_factory: Callable[..., Sink], caplog: pytest.LogCaptureFixture
) -> None:
    assert put(sink_factory(), pa.table({"n": [1]}))
    assert not put(sink_factory({"epoch.mismatch": "fail"}), pa.table({"n": [2]}))
    assert [record.getMessage() for record in caplog.records] == [
        (
            "stream 'memory:clicks': epoch 0 was repeated; its content could not be "
            "compared, because it was committed without epoch.mismatch=fail"
        )
    ]


def test_what_is_stored_beside_the_rows_is_content(
    scripted: Callable[..., Sink], script: Any
) -> None:
    script.carries, script.schema = frozenset({"_key"}), envelope_schema()
    sums = []
    for key in ("a", "a", "b"):
        rows = pa.record_batch({"value": [b"1"], "_key": [key]})
        raw = {"stream.scripted.decoder.class.name": "raw", "epoch.mismatch": "fail"}
        sink = scripted(raw)
        with closing(sink.writer(rows.schema, writer_id="w")) as writer:
            writer.write(rows)
            sums.append(writer.commit().summary.sums)
    assert sums[0] == sums[1]
    assert sums[0] != sums[2]


def test_time_of_a_failure_is_no_content_of_a_dead_letter() -> None:
    from streamfactory.wiring.decoding.deadletters import DEAD_LETTER_SCHEMA

    def letters(failed_at: str) -> pa.Table:
        row = {
            "topic": "t",
            "partition": 0,
            "offset": 1,
            "error_code": "malformed",
            "error_message": "it is torn",
            "failed_at": failed_at,
            "stream": "clicks",
        }
        return pa.Table.from_pylist([row], schema=DEAD_LETTER_SCHEMA)

    properties = {
        "streamType": "memory",
        "stream.memory.topic.name": "dead",
        "epoch.mismatch": "fail",
    }
    with open_sink(properties) as sink:
        assert put(sink, letters("2026-01-01T00:00:00.000000Z"))
        assert not put(sink, letters("2027-01-01T00:00:00.000000Z"))


def test_digest_survives_in_the_log_on_disk(tmp_path: Any) -> None:
    properties = {
        "streamType": "file",
        "stream.file.path": str(tmp_path),
        "stream.file.topic.name": "t",
        "epoch.mismatch": "fail",
    }
    here = Position({Partition("t", 0): 1})
    with open_sink(properties) as sink:
        assert sink.put(pa.table({"n": [1, 4]}), writer_id="w", source_position=here)
    with open_sink(properties) as sink:
        assert not put(sink, pa.table({"n": [4, 1]}))
        with pytest.raises(EpochMismatch):
            put(sink, pa.table({"n": [2, 3]}))
