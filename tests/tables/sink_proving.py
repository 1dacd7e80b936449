"""``make prove PATHS=delta,iceberg``: writers of one table are killed, and begun again.

Two have writer ids of their own, two share a third one, so that each fences the other,
and a foreign program commits between them. What another program reads of the table has
the rows of each epoch once.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import TableProperties
from tests.proving.children import Pack
from tests.proving.numbers import batch
from tests.proving.verdict import Verdict, compared

from streamfactory.spi import WriterFenced
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyiceberg.table import Table

EACH: Final = 3
"""Rows of an epoch."""
_ROOM: Final = 1_000_000
"""Numbers of one writer."""
_WRITERS: Final = ("a", "b", "shared")
_TURN: Final = "turn"
"""While this file exists, no writer begins another epoch: those that are under way are
in the foreign program's way, and end."""
_LONGEST: Final = 0.5
"""Seconds for which one that is killed may have run."""


def write(kind: str, root: str, writer: str) -> None:
    """Write epoch after epoch, from the last one on."""
    while not Path(root, "stop").exists():
        with contextlib.suppress(WriterFenced):
            write_claimed(kind, root, writer)


def write_claimed(kind: str, root: str, writer: str) -> None:
    """The same until another instance claims the writer."""
    with open_sink(properties(kind, Path(root))) as sink:
        with contextlib.closing(sink.committer(writer_id=writer)) as committer:
            last = committer.last_epoch()
        epoch = 0 if last is None else last + 1
        while not Path(root, "stop").exists():
            rows = batch(numbers_of(writer, epoch))
            sink.put(rows, writer_id=writer, epoch=epoch)
            epoch += 1
            while Path(root, _TURN).exists() and not Path(root, "stop").exists():
                time.sleep(0.005)


def properties(kind: str, root: Path) -> dict[str, str]:
    """The configuration of the table."""
    if kind == "delta":
        return {"streamType": kind, "stream.delta.path": f"{root}/t"}
    return {
        "streamType": kind,
        "stream.iceberg.table": "n.t",
        "stream.iceberg.warehouse": str(root),
    }


def numbers_of(writer: str, epoch: int) -> range:
    """What an epoch has."""
    first = _WRITERS.index(writer) * _ROOM + EACH * epoch
    return range(first, first + EACH)


@dataclass(frozen=True)
class Proof:
    """Of one format.

    Args:
        kind: Stream type.
        disturb: A foreign commit of one row, -1, below a folder.
        read: All numbers, by another program.
    """

    kind: str
    disturb: Callable[[Path], None]
    read: Callable[[Path], list[int]]

    def prove(self, rounds: int, seed: int, root: Path) -> Verdict:
        """Kill so many writers."""
        place = str(root)
        with open_sink(properties(self.kind, root)) as sink:
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
                    (root / _TURN).touch()
                    self.disturb(root)
                    (root / _TURN).unlink()
                    foreign += 1
            (root / "stop").touch()
            for name in roles:
                pack.finish(name)
        finally:
            pack.close()
        return self._verdict(root, foreign, rounds)

    def _verdict(self, root: Path, foreign: int, kills: int) -> Verdict:
        found = Counter(self.read(root))
        verdict = compared({"foreign": [-1] * foreign}, {"foreign": [-1] * found[-1]})
        del found[-1]
        with open_sink(properties(self.kind, root)) as sink:
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


def disturb_delta(root: Path) -> None:
    """By deltalake."""
    # Its own limit of retries is soon reached beside four writers.
    patient = CommitProperties(max_commit_retries=10_000)
    rows = batch([-1])
    while True:
        try:
            write_deltalake(f"{root}/t", rows, mode="append", commit_properties=patient)
        except DeltaError as error:
            # Its listing of the log may lack a commit that is added meanwhile.
            if "found gap" not in str(error):
                raise
        else:
            return


def read_delta(root: Path) -> list[int]:
    """By deltalake."""
    rows: pa.Table = DeltaTable(f"{root}/t").to_pyarrow_table()
    found: list[int] = rows.column("number").to_pylist()
    return found


@contextlib.contextmanager
def iceberg_table(root: Path) -> Iterator[Table]:
    """By pyiceberg."""
    with SqlCatalog(
        "default",
        uri=f"sqlite:///{root}/catalog.db?timeout=60",
        warehouse=f"file://{root}",
    ) as catalog:
        yield catalog.load_table("n.t")


def disturb_iceberg(root: Path) -> None:
    """By pyiceberg."""
    with iceberg_table(root) as table:
        patient = {
            TableProperties.COMMIT_NUM_RETRIES: "10000",
            TableProperties.COMMIT_MIN_RETRY_WAIT_MS: "1",
            TableProperties.COMMIT_MAX_RETRY_WAIT_MS: "20",
        }
        table.metadata.properties.update(patient)
        rows = batch([-1])
        table.append(pa.Table.from_batches([rows]))


def read_iceberg(root: Path) -> list[int]:
    """By pyiceberg."""
    with iceberg_table(root) as table:
        found: list[int] = table.scan().to_arrow().column("number").to_pylist()
        return found


DELTA: Final = Proof("delta", disturb_delta, read_delta)
ICEBERG: Final = Proof("iceberg", disturb_iceberg, read_iceberg)
