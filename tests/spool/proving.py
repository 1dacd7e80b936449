"""Senders, receivers and readers of spools, killed and started again.

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

import pyarrow as pa
from tests.proving.children import DEADLINE, Child
from tests.proving.numbers import SCHEMA, batch, numbers_of, store_at
from tests.proving.verdict import Verdict, compared
from tests.spool.receiving import receiving

from streamfactory.conformance.specimens import forgetful, redelivering
from streamfactory.spi import Partition, StreamError, TopicNotFound
from streamfactory.wiring.opening import open_sink
from streamfactory.wiring.plugins import PluginManager
from streamfactory.wiring.spool.rows import LOST, recorded_losses
from streamfactory.wiring.stream import open_stream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streamfactory.spi import Loss

LONGEST: Final = {"send": 0.4, "receive": 0.4, "read": 0.3}
"""Seconds that one that is killed may have run, by role."""
SIZES: Final = (1, 7, 400)
"""Rows of an epoch."""


def prove(rounds: int, seed: int, root: Path) -> Verdict:
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
    verdict += compared({"read": found}, {"read": _read(root)})
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
    verdict += compared({"read": found}, {"read": _read(root)})
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
    properties = {**harness.properties(), **_spool(root)}
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
    receiver = {**wire, "stream.zeromq.bind": place, **_spool(root)}
    receiver["stream.zeromq.senders"] = "1"
    sender = {**wire, "stream.zeromq.connect": place, "stream.zeromq.sender.id": "one"}
    roles: dict[str, tuple[Callable[..., None], Mapping[str, str]]] = {
        "send": (send, sender),
        "receive": (receive, receiver),
        "read": (read, receiver),
    }

    def start(name: str) -> Child:
        role, properties = roles[name]
        return Child(role, str(root), properties)

    children = {name: start(name) for name in roles}
    try:
        for _ in range(kills):
            name = chance.choice(sorted(roles))
            children[name].wait_until_it_runs()
            time.sleep(chance.random() * LONGEST[name])
            children[name].kill()
            children[name] = start(name)
        for name, marker in (
            ("send", "enough"),
            ("read", "drain"),
            ("receive", "stop"),
        ):
            (root / marker).touch()
            assert children.pop(name).join() == 0, name
    finally:
        for child in children.values():
            child.end()
    found, losses = _stored(root)
    wanted = [n for epoch in range(_done(root)) for n in _numbers(epoch)]
    verdict = compared({"all": wanted}, {"all": found})
    verdict += compared({"read": found}, {"read": _read(root)})
    verdict.kills = kills
    if losses:
        verdict.notes.append(f"records of losses over zeromq: {losses[:3]}")
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

    _persist(attempt)


# --- roles ------------------------------------------------------------------------


def receive(root: str, properties: Mapping[str, str]) -> None:
    """Receive until told to stop."""
    receiver = receiving(properties, _plugins())
    while not Path(root, "stop").exists():
        assert receiver.error is None, receiver.error
        time.sleep(0.02)
    receiver.close()


def read(root: str, properties: Mapping[str, str]) -> None:
    """Copy the spool by offset into a log, exactly once."""

    def attempt() -> None:
        with open_sink(_out(Path(root))) as sink:
            with contextlib.closing(sink.committer(writer_id="reader")) as committer:
                held = committer.last()
            epoch = 0 if held is None else held.epoch + 1
            start = "earliest" if held is None else held.source_position
            with open_stream(
                properties, start=start, follow=True, plugins=_plugins()
            ) as source:
                while True:
                    over = Path(root, "drain").exists()
                    found = source.next_batch(0.05)
                    if found is not None and found.rows.num_rows:
                        sink.put(
                            pa.record_batch(found.rows.columns, schema=SCHEMA),
                            writer_id="reader",
                            epoch=epoch,
                            source_position=source.position,
                        )
                        epoch += 1
                    elif over and not any(source.lag().values()):
                        return

    _persist(attempt)


def _persist(attempt: Callable[[], None]) -> None:
    """Try again while the other side is away."""
    deadline = time.monotonic() + 3 * DEADLINE
    while True:
        try:
            attempt()
        except StreamError as error:
            waits = error.retryable or isinstance(error, TopicNotFound)
            if not waits or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline


def _plugins() -> PluginManager:
    manager = PluginManager()
    manager.register(forgetful)
    manager.register(redelivering)
    return manager


def _spool(root: Path) -> dict[str, str]:
    return {
        "spool.path": str(root / "spool"),
        "spool.fsync": "never",
        "retry.initial.millis": "5",
        "retry.max.millis": "50",
    }


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
