"""Senders, receivers and readers of spools, Spark's too, killed and started again.

Three transports: one that delivers again what was not acknowledged, one that forgets,
and ZeroMQ's DEALER/ROUTER, whose sender is killed too. Where there are acknowledgements
nothing may be lost, and nothing stored twice. Where there are none, what is missing has
to be what the records of losses name, offset for offset.
"""

from __future__ import annotations

import contextlib
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.proving.children import DEADLINE, Child, Pack
from tests.proving.copies import copy_numbers, until_done
from tests.proving.numbers import batch, numbers_of, store_at
from tests.proving.verdict import Verdict, compared
from tests.spool import spark_proving
from tests.spool.receiving import quick_spool, receive, specimens

from streamfactory.conformance.specimens import forgetful, redelivering
from streamfactory.spi import Partition, TopicNotFound
from streamfactory.wiring.spool.rows import LOST, recorded_losses
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streamfactory.spi import Loss

LONGEST: Final = {"send": 0.4, "receive": 0.4, "read": 0.3}
"""Seconds that one that is killed may have run, by role."""
SIZES: Final = (1, 7, 400)
"""Rows of an epoch."""


def prove(rounds: int, seed: int, root: Path) -> Verdict:
    """Kill so many of them: a quarter of them tasks and drivers of Spark."""
    of_spark = rounds // 4
    verdict = prove_transports(rounds - of_spark, seed, root)
    if of_spark:
        folder = root / "spark"
        folder.mkdir()
        verdict += spark_proving.prove(of_spark, seed, folder)
    return verdict


def prove_transports(rounds: int, seed: int, root: Path) -> Verdict:
    """Kill so many of them, over each transport in turn."""
    verdict = Verdict()
    share = max(1, rounds // 3)
    kills = {"again": share, "forgets": share, "zeromq": max(1, rounds - 2 * share)}
    proofs = {
        "again": _prove_redelivery,
        "forgets": _prove_losses,
        "zeromq": _prove_zmq,
    }
    for number, (name, proof) in enumerate(proofs.items()):
        folder = root / name
        folder.mkdir()
        verdict += proof(kills[name], seed + number, folder)
    return verdict


# --- transports of this process ---------------------------------------------------


def _prove_redelivery(kills: int, seed: int, root: Path) -> Verdict:
    harness = redelivering.RedeliveringHarness(root)
    with _serving(harness, kills, seed, root) as sent:
        found = _stored(root)[0]
    verdict = compared({"all": sent}, {"all": found})
    verdict += _compared_copy(found, root)
    verdict.kills = kills
    return verdict


def _prove_losses(kills: int, seed: int, root: Path) -> Verdict:
    harness = forgetful.ForgetfulHarness(root)
    with _serving(harness, kills, seed, root, end=False) as sent:
        found, losses = _stored(root)
    named = [n for one in losses for n in range(one.start, one.end or one.start)]
    # Numbers are offsets here: what is missing is what the records name.
    missing = sorted(set(sent) - set(found))
    verdict = compared({"named": missing}, {"named": sorted(set(named))})
    verdict += _compared_copy(found, root)
    verdict.twice += len(found) - len(set(found))
    verdict.kills = kills
    records = sum(one.end is not None for one in losses)
    note = f"{len(missing)} of {len(sent)} rows in {records} records of losses"
    verdict.notes.append(f"without acknowledgements: {note}")
    return verdict


@contextlib.contextmanager
def _serving(harness: Any, kills: int, seed: int, root: Path, **how: Any) -> Any:
    """Write while what is behind a harness is killed; answers what was written."""
    chance = random.Random(seed)
    harness.create(1)
    properties = {**harness.properties(), **quick_spool(root)}
    roles: dict[str, Callable[..., None]] = {"receive": receive, "read": read}
    children = {
        name: Child(role, str(root), properties) for name, role in roles.items()
    }
    sent: list[int] = []
    try:
        for _ in range(kills):
            name = chance.choice(sorted(roles))
            until = time.monotonic() + chance.random() * LONGEST[name]
            while time.monotonic() < until:
                fresh = range(len(sent), len(sent) + chance.choice(SIZES))
                sent += fresh
                harness.write(0, fresh, **how)
                time.sleep(0.005)
            children[name].kill()
            children[name] = Child(roles[name], str(root), properties)
        # A last one, so that what was lost before it is known.
        _until(lambda: _ended(root, harness, sent, how))
        (root / "drain").touch()
        assert children.pop("read").join() == 0
        (root / "stop").touch()
        assert children.pop("receive").join() == 0
        yield sent
    finally:
        for child in children.values():
            child.end()
        harness.close()


def _ended(root: Path, harness: Any, sent: list[int], how: Mapping[str, Any]) -> bool:
    """Send one more row, and wait a little until it is stored."""
    sent.append(len(sent))
    harness.write(0, [sent[-1]], **how)
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        if sent[-1] in _stored(root)[0][-1:]:
            return True
        time.sleep(0.05)
    return False


# --- ZeroMQ, whose sender is killed ------------------------------------------------


def _prove_zmq(kills: int, seed: int, root: Path) -> Verdict:
    chance = random.Random(seed)
    wire = {
        "streamType": "zeromq",
        "stream.zeromq.pattern": "dealer-router",
        "stream.zeromq.topic.name": "numbers",
    }
    place = f"ipc://{root}/wire"
    receiver = {**wire, "stream.zeromq.bind": place, **quick_spool(root)}
    receiver["stream.zeromq.senders"] = "1"
    sender = {**wire, "stream.zeromq.connect": place, "stream.zeromq.sender.id": "one"}
    roles: dict[str, tuple[Callable[..., None], Mapping[str, str]]] = {
        "send": (send, sender),
        "receive": (receive, receiver),
        "read": (read, receiver),
    }

    given = {name: (role, str(root), its) for name, (role, its) in roles.items()}
    pack = Pack(given)
    try:
        pack.hunt(kills, chance, LONGEST)
        markers = {"send": "enough", "read": "drain", "receive": "stop"}
        for name, marker in markers.items():
            (root / marker).touch()
            pack.finish(name)
    finally:
        pack.close()
    found, losses = _stored(root)
    wanted = [n for epoch in range(_done(root)) for n in _numbers(epoch)]
    verdict = compared({"all": wanted}, {"all": found})
    verdict += _compared_copy(found, root)
    verdict.kills = kills
    if losses:
        verdict.notes.append(f"records of losses over zeromq: {losses[:3]}")
    return verdict


def _compared_copy(stored: list[int], root: Path) -> Verdict:
    """What the reader has copied of what is stored."""
    copied = _read(root)
    verdict = compared({"read": stored}, {"read": copied})
    if not verdict.good:
        note = f"{root.name}: {len(stored)} rows are stored, {len(copied)} copied"
        verdict.notes.append(note)
    return verdict


def _numbers(epoch: int) -> range:
    return range(epoch * 50, epoch * 50 + 50)


def _done(root: Path) -> int:
    """Epochs that the sender knows to be stored."""
    path = root / "done"
    return int(path.read_text()) if path.exists() else 0


def send(root: str, properties: Mapping[str, str]) -> None:
    """Send epochs; each is done when it was acknowledged."""

    def attempt() -> None:
        with open_sink(properties) as sink:
            over = False
            while not over:  # what may be stored and not known to be is sent again
                over = Path(root, "enough").exists()
                epoch = _done(Path(root))
                sink.put(batch(_numbers(epoch)), writer_id="sender", epoch=epoch)
                fresh = Path(root, "done.new")
                fresh.write_text(str(epoch + 1))
                fresh.replace(Path(root, "done"))

    until_done(attempt, TopicNotFound, seconds=3 * DEADLINE)


# --- roles ------------------------------------------------------------------------


def read(root: str, properties: Mapping[str, str]) -> None:
    """Copy the spool by offset into a log, exactly once."""

    def attempt() -> None:
        target, drain = _out(Path(root)), Path(root, "drain")
        copy_numbers(properties, target, drain, specimens())

    until_done(attempt, TopicNotFound, seconds=3 * DEADLINE)


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline


def _out(root: Path) -> dict[str, str]:
    return {
        "streamType": "file",
        "stream.file.path": str(root / "out"),
        "stream.file.fsync": "never",
    }


def _stored(root: Path) -> tuple[list[int], list[Loss]]:
    """What the spool holds, with the losses recorded in it."""
    store = store_at(root / "spool")
    try:
        log = store.open("numbers")
        losses, at, latest = [], 0, log.bounds()[0].latest
        while at < latest:
            part = log.read(0, at, max_rows=1 << 30, max_bytes=1 << 40)
            column = part.rows.column(LOST.name)
            losses += recorded_losses(column, Partition("numbers", 0))
            at += part.rows.num_rows
        return numbers_of(log), losses
    except TopicNotFound:
        return [], []
    finally:
        store.close()


def _read(root: Path) -> list[int]:
    """What the reader has copied."""
    store = store_at(root / "out")
    try:
        return numbers_of(store.open("default"))
    finally:
        store.close()
