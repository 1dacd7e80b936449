"""Offsets of changes, and messages of pgoutput, without a server."""

from __future__ import annotations

import random
import struct
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from streamfactory.spi import CorruptData, Unsupported

from streamfactory_postgres.changes.messages import (
    Begin,
    Change,
    Commit,
    Relation,
    Truncate,
    parse,
)
from streamfactory_postgres.changes.numbering import (
    begin_run,
    lsn_from,
    lsn_of,
    offset_of,
    text_of,
)
from streamfactory_postgres.changes.rows import Rows, text_of_change
from streamfactory_postgres.changes.slots import Slot

LSN = 0x15_2900A8
NEXT = LSN + 40
"""The first byte at which another commit can begin."""


def row(*values: bytes | None) -> bytes:
    parts = [struct.pack(">H", len(values))]
    for value in values:
        if value is None:
            parts.append(b"n")
        else:
            parts.append(b"t" + struct.pack(">I", len(value)) + value)
    return b"".join(parts)


MESSAGES = {
    b"B" + struct.pack(">QqI", LSN, 5, 7): Begin(LSN, 946_684_800_000_005),
    b"C\0" + struct.pack(">QQq", LSN, NEXT, 5): Commit(NEXT),
    b"R"
    + struct.pack(">I", 9)
    + b"public\0t\0f"
    + struct.pack(">H", 1)
    + b"\1id\0"
    + struct.pack(">Ii", 20, -1): Relation(9, (("id", 20, -1),)),
    b"I" + struct.pack(">I", 9) + b"N" + row(b"1", None): Change(
        9, None, [b"1", None], whole=True
    ),
    b"U" + struct.pack(">I", 9) + b"O" + row(b"1") + b"N" + row(b"2"): Change(
        9, [b"1"], [b"2"], whole=True
    ),
    b"U" + struct.pack(">I", 9) + b"N" + row(b"2"): Change(
        9, None, [b"2"], whole=False
    ),
    b"D" + struct.pack(">I", 9) + b"K" + row(b"1"): Change(
        9, [b"1"], None, whole=False
    ),
    b"T" + struct.pack(">IBI", 1, 0, 9): Truncate([9]),
}


@pytest.mark.parametrize(("data", "message"), MESSAGES.items())
def test_messages_are_parsed(data: bytes, message: Any) -> None:
    assert parse(data) == message


@pytest.mark.parametrize("data", MESSAGES)
def test_a_message_that_is_cut_is_refused_or_is_no_other_row(data: bytes) -> None:
    for length in range(1, len(data)):
        with pytest.raises(CorruptData, match="pgoutput"):
            parse(data[:length])


def test_a_value_that_was_not_sent_is_that_of_the_old_row() -> None:
    new = struct.pack(">H", 2) + b"t\0\0\0\x012" + b"u"
    data = b"U" + struct.pack(">I", 9) + b"O" + row(b"1", b"long") + b"N" + new
    assert parse(data) == Change(9, [b"1", b"long"], [b"2", b"long"], whole=True)


def test_offsets_never_fall_and_stay_before_the_next_commit() -> None:
    numbers = [*range(20_000), *(2**n + d for n in range(15, 42) for d in (-1, 0, 1))]
    offsets = [offset_of(LSN, number) for number in numbers]
    assert all(one <= other for one, other in pairwise(offsets))
    assert offsets[:4096] == [offsets[0] + number for number in range(4096)]
    assert offsets[-1] < offset_of(NEXT)
    assert all(lsn_of(offset) <= LSN < lsn_of(offset) + 32 for offset in offsets)


def test_runs_of_one_offset_are_at_most_a_2048th_of_the_transaction() -> None:
    for number in (4096, 10_000, 1_000_000, 2**40 + 1):
        begin = begin_run(number)
        assert offset_of(LSN, begin) > offset_of(LSN, begin - 1)
        assert begin == number or offset_of(LSN, begin - 1) == offset_of(LSN, number)
        assert begin - number <= number // 2048


def test_positions_in_the_wal_are_read_as_they_are_written() -> None:
    assert text_of(lsn_from("16/B374D848")) == "16/B374D848"
    assert offset_of(2**52 - 8, 2**42 - 1) < 2**63
    with pytest.raises(Unsupported, match="52 bits"):
        offset_of(2**52)


def test_rows_of_one_offset_are_never_split() -> None:
    rows, draw = Rows(), random.Random(7)
    offsets = sorted(draw.randrange(40) for _ in range(200))
    found: list[int] = []
    for offset in offsets:
        rows.add(offset, [b'a"\n,', None], text_of_change("insert", LSN, 0))
        if rows.ready > 5:
            taken, of = rows.take(pa.schema({"a": pa.string(), "b": pa.int64()}))
            assert taken["_change"].to_pylist() == ["insert"] * len(taken)
            assert taken["a"].to_pylist() == ['a"\n,'] * len(taken)
            assert rows.next_offset > of[-1].as_py()
            found += of.to_pylist()
    rows.complete()
    found += rows.take(pa.schema({"a": pa.string(), "b": pa.int64()}))[1].to_pylist()
    assert found == offsets


def slot(held: int, status: str, safe: int | None) -> Slot:
    return Slot("s", "", 1, 1, 0, 0, 0, 1000, 1000, 1000 + held, status, safe)


@pytest.mark.parametrize(
    ("held", "status", "safe", "warning"),
    [
        (500, "reserved", None, None),
        (2000, "reserved", None, "sets no limit"),
        (800, "extended", 200, None),
        (900, "extended", 100, "is lost after"),
        (900, "unreserved", -5, "is lost after 0 MiB"),
    ],
)
def test_a_slot_is_warned_of_before_it_fills_the_disk_or_is_lost(
    held: int, status: str, safe: int | None, warning: str | None
) -> None:
    found = slot(held, status, safe).danger(1000)
    assert found is None if warning is None else warning in str(found)
