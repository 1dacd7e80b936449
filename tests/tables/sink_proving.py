"""``make prove PATHS=delta``: writers of one table are killed, and begun again.

Two have writer ids of their own, two share a third one, so that each fences the other,
and a foreign program commits between them. What another program reads of the table has
the rows of each epoch once.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from deltalake import CommitProperties, DeltaTable, write_deltalake
from tests.proving.children import Pack
from tests.proving.numbers import batch
from tests.proving.verdict import Verdict, compared

from streamfactory.spi import WriterFenced
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

EACH: Final = 3
"""Rows of an epoch."""
_ROOM: Final = 1_000_000
"""Numbers of one writer."""
_WRITERS: Final = ("a", "b", "shared")
_LONGEST: Final = 0.5
"""Seconds for which one that is killed may have run."""


def write(kind: str, root: str, writer: str) -> None:
    """Write epoch after epoch, from the last one on."""
    while not Path(root, "stop").exists():
        with contextlib.suppress(WriterFenced):
            write_claimed(kind, root, writer)


def write_claimed(kind: str, root: str, writer: str) -> None:
    """The same until another instance claims the writer."""
    with open_sink({"streamType": kind, f"stream.{kind}.path": f"{root}/t"}) as sink:
        with contextlib.closing(sink.committer(writer_id=writer)) as committer:
            last = committer.last_epoch()
        epoch = 0 if last is None else last + 1
        while not Path(root, "stop").exists():
            rows = batch(numbers_of(writer, epoch))
            sink.put(rows, writer_id=writer, epoch=epoch)
            epoch += 1


def numbers_of(writer: str, epoch: int) -> range:
    """What an epoch has."""
    first = _WRITERS.index(writer) * _ROOM + EACH * epoch
    return range(first, first + EACH)


@dataclass(frozen=True)
class Proof:
    """Of one format.

    Args:
        kind: Stream type.
        disturb: A foreign commit of one row, -1.
        read: All numbers, by another program.
    """

    kind: str
    disturb: Callable[[Path], None]
    read: Callable[[Path], list[int]]

    def prove(self, rounds: int, seed: int, root: Path) -> Verdict:
        """Kill so many writers."""
        place, table = str(root), root / "t"
        with open_sink(
            {"streamType": self.kind, f"stream.{self.kind}.path": str(table)}
        ) as sink:
            sink.put(batch([-1]))
        roles: dict[str, tuple[Any, ...]] = {
            f"{name}-{number}": (write, self.kind, place, name)
            for number, name in enumerate((*_WRITERS, "shared"))
        }
        pack, chance = Pack(roles), random.Random(seed)
        longest = dict.fromkeys(roles, _LONGEST)
        foreign = 1
        try:
            for _ in range(rounds):
                pack.hunt(1, chance, longest)
                if chance.random() < 0.3:
                    self.disturb(table)
                    foreign += 1
            (root / "stop").touch()
            for name in roles:
                pack.finish(name)
        finally:
            pack.close()
        return self._verdict(table, foreign, rounds)

    def _verdict(self, table: Path, foreign: int, kills: int) -> Verdict:
        found = Counter(self.read(table))
        verdict = compared({"foreign": [-1] * foreign}, {"foreign": [-1] * found[-1]})
        del found[-1]
        with open_sink(
            {"streamType": self.kind, f"stream.{self.kind}.path": str(table)}
        ) as sink:
            for place, name in enumerate(_WRITERS):
                with contextlib.closing(sink.committer(writer_id=name)) as committer:
                    last = committer.last_epoch()
                wanted = [] if last is None else range(EACH * (last + 1))
                seen = found.elements()
                numbers = sorted(n % _ROOM for n in seen if n // _ROOM == place)
                verdict += compared({name: wanted}, {name: numbers})
        verdict.kills = kills
        verdict.notes.append(f"{self.kind}: {found.total() // EACH} epochs")
        return verdict


def disturb_delta(table: Path) -> None:
    """By deltalake."""
    # Its own limit of retries is soon reached beside four writers.
    patient = CommitProperties(max_commit_retries=10_000)
    rows = batch([-1])
    write_deltalake(str(table), rows, mode="append", commit_properties=patient)


def read_delta(table: Path) -> list[int]:
    """By deltalake."""
    rows: pa.Table = DeltaTable(str(table)).to_pyarrow_table()
    found: list[int] = rows.column("number").to_pylist()
    return found


DELTA: Final = Proof("delta", disturb_delta, read_delta)
