"""Senders and readers of zeromq streams, killed and started again.

With acknowledgements a sender with an id writes epochs, and `copy` stores them in a
file stream: each row has to be there once. Without them each run of a sender is a
stream, whose rows are read, or named by a loss.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from tests.proving.children import Pack
from tests.proving.numbers import SCHEMA, batch, numbers_of, store_at
from tests.proving.verdict import Verdict, compared

import streamfactory
from streamfactory.spi import Finished, StreamTimeout
from streamfactory.transfer.copies import open_copy
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streamfactory.wiring.writing.sink import Sink

EACH: Final = 7
"""Rows of an epoch."""
LONGEST: Final = {"send": 0.6, "lose": 0.3, "store": 0.9, "read": 0.4}
"""Seconds that one that is killed may have run, by role."""
RUN: Final = 1 << 32
"""A run's rows begin at a multiple of that."""


def prove(rounds: int, seed: int, root: Path) -> Verdict:
    """Kill so many: half of them with acknowledgements."""
    verdict = Verdict()
    chance = random.Random(seed)
    parts = {"acknowledged": rounds - rounds // 2, "pub-sub": rounds // 4}
    parts["push-pull"] = rounds - sum(parts.values())
    for name, kills in parts.items():
        place = root / name
        place.mkdir()
        part = (
            prove_stored(kills, chance, place)
            if name == "acknowledged"
            else prove_named(kills, chance, place, name)
        )
        verdict.notes.append(f"{name}: {part}")
        verdict += part
    return verdict


# --- with acknowledgements --------------------------------------------------------


def prove_stored(kills: int, chance: random.Random, root: Path) -> Verdict:
    """What a sender has committed is stored once."""
    store = store_at(root)
    store.create("out", SCHEMA)
    hunt({"send": send, "store": keep}, kills, chance, root, ("send",))
    epochs = count(root / "epochs")
    found = numbers_of(store.open("out"))
    store.close()
    verdict = compared({"out": range(EACH * epochs)}, {"out": found})
    verdict.kills = kills
    return verdict


def send(root: str) -> None:
    """Write epochs; each that was committed is noted."""
    path = Path(root, "epochs")
    options = {"stream.zeromq.sender.id": "sender"}
    with open_sink(stream(root, "dealer-router", "connect"), options=options) as sink:
        is_over = False
        while not is_over:
            # The last epoch of a killed sender may be stored: it is repeated.
            is_over = Path(root, "stop").exists()
            epoch = count(path)
            sink.put(batch(range(EACH * epoch, EACH * (epoch + 1))), epoch=epoch)
            write_whole(path, str(epoch + 1))


def keep(root: str) -> None:
    """Copy what comes into a file stream."""
    source = stream(root, "dealer-router", "bind")
    copy = open_copy(source, target(root), writer_id="copy", create=False)
    with contextlib.closing(copy):
        copy.run(threading.Event(), follow=True)


# --- without ----------------------------------------------------------------------


def prove_named(kills: int, chance: random.Random, root: Path, pattern: str) -> Verdict:
    """Rows that were not read are within a loss of their sender's stream."""
    store = store_at(root)
    store.create("out", SCHEMA)
    roles = {"lose": lose, "read": read}
    hunt(roles, kills, chance, root, ("lose", "read"), pattern)
    found = numbers_of(store.open("out"))
    store.close()
    verdict = Verdict(kills=kills)
    verdict.twice = len(found) - len(set(found))
    losses = [json.loads(line) for line in lines(root / "losses")]
    incarnations = {
        name: number for number, name in map(json.loads, lines(root / "met"))
    }
    for number in range(1, count(root / "runs") + 1):
        sent = count(root / f"sent-{number}")
        read_ = {row - number * RUN for row in found if row // RUN == number}
        named = [
            (start, end)
            for name, start, end in losses
            if incarnations.get(name) == number
        ]
        # Rows that were sent before a reader had met the sender are under the open end
        # of its predecessor's stream.
        first = min(read_, default=sent)
        missing = set(range(first, sent)) - read_
        verdict.lost += sum(
            not any(
                start <= row < (RUN if end is None else end) for start, end in named
            )
            for row in missing
        )
    return verdict


def lose(root: str, pattern: str) -> None:
    """Write rows of a run, and note how many were sent."""
    number = count(Path(root, "runs")) + 1
    write_whole(Path(root, "runs"), str(number))
    sent = 0
    with open_sink(stream(root, pattern, "bind")) as sink:
        # Until a reader reads that is not killed: nothing would follow the last rows,
        # and show that they are missing.
        is_over = False
        while not is_over:
            is_over = Path(root, "drained").exists()
            try:
                start = number * RUN + sent
                sink.put(batch(range(start, start + EACH)))
            except StreamTimeout:
                continue
            sent += EACH
            write_whole(Path(root, f"sent-{number}"), str(sent))
            time.sleep(0.001)
        sink.factory.end_stream(Finished())


def read(root: str, pattern: str) -> None:
    """Store what comes with its position; losses are noted before."""
    with open_sink(target(root)) as sink:
        committer = sink.committer(writer_id="reader")
        held = committer.last()
        committer.close()
        epoch = 0 if held is None else held.epoch + 1
        start = "earliest" if held is None else held.source_position
        given = {**stream(root, pattern, "connect"), "out.of.range": "earliest"}
        with streamfactory.open(given, start=start, follow=True) as source:
            before = next(iter(source.position.incarnations.values()), None)
            while not source.ends:
                found = source.next_batch(0.05)
                if found is None:
                    continue
                for loss in found.losses:
                    # Without an end it is of the stream that was read before.
                    name = found.incarnation if loss.end is not None else before
                    note(root, "losses", [name, loss.start, loss.end])
                before = found.incarnation or before
                if found.num_rows:
                    if Path(root, "stop").exists():
                        Path(root, "drained").touch()
                    numbers = found.rows.column("number")
                    note(root, "met", [numbers[0].as_py() // RUN, found.incarnation])
                    rows = pa.record_batch([numbers], schema=SCHEMA)
                    store_rows(sink, rows, epoch, source)
                    epoch += 1


def store_rows(sink: Sink, rows: pa.RecordBatch, epoch: int, source: Any) -> None:
    position = source.position
    sink.put(rows, writer_id="reader", epoch=epoch, source_position=position)


# --- both -------------------------------------------------------------------------


def hunt(
    roles: dict[str, Callable[..., None]],
    kills: int,
    chance: random.Random,
    root: Path,
    last: tuple[str, ...],
    *arguments: str,
) -> None:
    """Kill them at random moments; then let some end by themselves."""
    given = (str(root), *arguments)
    pack = Pack({name: (role, *given) for name, role in roles.items()})
    try:
        pack.hunt(kills, chance, LONGEST)
        (root / "stop").touch()
        for name in last:
            pack.finish(name)
    finally:
        pack.close()


def stream(root: str, pattern: str, side: str) -> dict[str, str]:
    return {
        "streamType": "zeromq",
        "stream.zeromq.topic.name": "numbers",
        "stream.zeromq.pattern": pattern,
        f"stream.zeromq.{side}": f"ipc://{root}/s",
        "stream.zeromq.connection.timeout.millis": "60000",
        "schema": "number bigint",
    }


def target(root: str) -> dict[str, str]:
    return {
        "streamType": "file",
        "stream.file.path": root,
        "stream.file.topic.name": "out",
        "realtime.segment.flush.threshold.time": "10ms",
    }


def count(path: Path) -> int:
    return int(path.read_text()) if path.exists() else 0


def write_whole(path: Path, text: str) -> None:
    temporary = path.with_suffix(".new")
    temporary.write_text(text)
    temporary.replace(path)


def note(root: str, name: str, what: list[Any]) -> None:
    with Path(root, name).open("a") as file:
        file.write(json.dumps(what) + "\n")
        file.flush()
        os.fsync(file.fileno())


def lines(path: Path) -> Iterator[str]:
    return iter(path.read_text().splitlines()) if path.exists() else iter(())
