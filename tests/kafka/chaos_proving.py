"""Three brokers that are killed, stopped and cut off, while all kinds of clients run.

A writer fills topic a, a copy that follows brings it to b, Spark with executors of its
own from b to c, and two groups, one of each protocol, read b. Meanwhile brokers,
drivers, Python workers and executors are killed at random, inside their commits too, or
stopped until their successors have taken over. In the end each topic has each row once,
in order and as it was written, and each group has handed out every row, and none again
that was committed when a member began.

It runs in a network of its own: `tests.proving.network`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from native.compiling import NoCompiler
from tests.kafka.broker import Cluster, quiet_admin
from tests.kafka.chaos_actors import Query, Role, parent_of
from tests.kafka.chaos_oracle import judge_group, judge_topics
from tests.kafka.chaos_roles import PARTITIONS, PROTOCOLS, Place, copy, member, write
from tests.kafka.conftest import compiled
from tests.kafka.jars import Unavailable
from tests.kafka.topics import Topics
from tests.proving.children import Child
from tests.proving.java import missing_java
from tests.proving.network import Host, in_a_network, join, missing_network, separate
from tests.proving.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.kafka.broker import Node

SETTINGS: Final = {
    "min.insync.replicas": "2",
    "transaction.state.log.min.isr": "2",
    "replica.lag.time.max.ms": "3000",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.session.timeout.ms": "5000",
    "group.min.session.timeout.ms": "3000",
}
"""With copies on three brokers, an acknowledged row survives the loss of one."""
PATIENCE: Final = 600.0
"""Seconds in which whatever was disturbed goes on."""
IN_COMMITS: Final = ("begin", "send", "send_one", "commit", "await_visible", "remove")
"""Where a driver may be held: steps of its commit."""


class Proof:
    """Everything that runs, and what happens to it.

    Args:
        folder: Of all files; empty.
        seed: Of all that is left to chance.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.hosts = [Host(number) for number in (1, 2, 3)]
        self.cluster = Cluster(
            folder / "brokers", properties=SETTINGS, hosts=self.hosts
        )
        self.kinds: Counter[str] = Counter()
        try:
            native = str(compiled(folder / "native"))
        except NoCompiler:
            native = None
        self.place = Place(str(folder), self.cluster.bootstrap, native)
        self.roles: dict[str, Role] = {}

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Start everything; all of it has ended when this returns."""
        with self.cluster:
            topics = Topics(self.cluster.bootstrap)
            for name in "abc":
                topics.create(name, PARTITIONS, copies=3)
            self.roles = {
                "write": Role(partial(self._child, write)),
                "copy": Role(partial(self._child, copy)),
            }
            self.query = Query(self.place, self._native)
            try:
                self._await(lambda: self.query.batches > 1, "the query")
                self.roles |= self._members()
                self.place.file("go").touch()
                yield
            finally:
                for role in self.roles.values():
                    role.end()
                self.query.driver.kill()
        for host in self.hosts:
            host.close()

    def disturb(self) -> None:
        """Do one thing, and wait until the writer has gone on."""
        name = self.chance.choices([*WEIGHTS], [*WEIGHTS.values()])[0]
        say(f"{name} at epoch {self._epoch()}")
        getattr(self, name)()
        self.kinds[name] += 1
        before = self._epoch()
        self._await(lambda: self._epoch() > before, f"the writer, after {name},")

    def finish(self) -> Verdict:
        """Let everything come to its end, and compare."""
        self._await_brokers()
        self.place.file("stop").touch()
        for name, file in (("write", "stop"), ("copy", "drain")):
            self.place.file(file).touch()
            self.roles[name].kill()
            self._await_end(name)
        self.query.drain()
        topics, offsets = judge_topics(self.place)
        for protocol in PROTOCOLS:
            judged = partial(judge_group, self.place, protocol, offsets)
            self._await(partial(_lossless, judged), f"group {protocol}", fail=False)
            topics += judged()
        ends = self.place.file("ends")
        ended = Counter(ends.read_text().splitlines() if ends.exists() else ())
        ended += Counter({f"query {k}": n for k, n in self.query.ends.items()})
        topics.notes += [
            f"kafka3: {sorted(self.kinds.items())}",
            f"kafka3: ended by errors, and begun again: {sorted(ended.items())}",
            f"kafka3: {self.query.batches} batches of Spark"
            + ("" if self.place.native else "; NATIVE NOT PROVED, no Rust"),
        ]
        return topics

    # --- brokers ----------------------------------------------------------------

    def broker_killed(self) -> None:
        with self._down([self._node()]):
            self._wait(0, 5)

    def two_brokers_killed(self) -> None:
        """No majority is left: everything stands still."""
        with self._down(self.chance.sample(self.cluster.nodes, 2)):
            self._wait(0, 5)

    def broker_stopped(self) -> None:
        """It is silent, for longer than the sessions of brokers and members or not."""
        node = self._node()
        node.pause()
        self._wait(0.5, 10)
        node.resume()

    def broker_cut_off(self) -> None:
        """By all, or in one direction: then it hears, or is heard, only."""
        host = self.chance.choice(self.hosts)
        host.cut(self.chance.choice(["in", "out", "both"]))
        self._wait(0.5, 10)
        host.mend()

    def brokers_separated(self) -> None:
        """Two do not reach each other; clients reach both."""
        one, other = self.chance.sample(self.hosts, 2)
        separate(one, other)
        self._wait(0.5, 10)
        join(one, other)

    # --- clients ----------------------------------------------------------------

    def client_killed(self) -> None:
        self._wait(0, 1)
        self.chance.choice([*self.roles.values()]).kill()

    def client_stopped(self) -> None:
        """It wakes when another has taken over: a writer or a copy is fenced."""
        name = self.chance.choice([*self.roles])
        role = self.roles[name]
        os.kill(role.pid, signal.SIGSTOP)
        old = role.succeed()
        self._wait(1, 10)
        assert old.process.pid is not None
        os.kill(old.process.pid, signal.SIGCONT)
        self._end_superseded(name, old)

    def client_held(self) -> None:
        """Held inside its commit, it is killed, superseded, or its brokers fail."""
        name = self.chance.choice(["write", "copy"])
        role, holds = self.roles[name], self.place.holds(name)
        holds.order(self.chance.choice(IN_COMMITS))
        try:
            if not self._held(name):
                return
            what = self.chance.choice(["kill", "supersede", "brokers"])
            self.kinds[f"{name}: {what} inside a commit"] += 1
            if what == "kill":
                role.kill()
            elif what == "brokers":
                self._fail_brokers()
            else:
                old = role.succeed()
                self._wait(1, 8)
                holds.release()
                self._end_superseded(name, old)
        finally:
            holds.release()

    def driver_killed(self) -> None:
        self._wait(0, 2)
        self.query.kill()

    def executor_killed(self) -> None:
        self._kill_one("CoarseGrainedExecutorBackend")

    def worker_killed(self) -> None:
        self._kill_one("pyspark.daemon")

    def query_held(self) -> None:
        """A task, or the commit, is held; then something of it is killed."""
        holds = self.place.holds("spark")
        step = self.chance.choice(["staged", "staged", "committed", *IN_COMMITS])
        holds.order(step)
        try:
            pid = self._held("spark")
            if not pid:
                return
            options = ["process", "driver", "brokers"]
            options += ["executor"] if step == "staged" else []
            what = self.chance.choice(options)
            self.kinds[f"spark: {what} at {step}"] += 1
            if what == "driver":
                self.query.kill()
            elif what == "brokers":
                self._fail_brokers()
            else:
                # A task's process was forked by a daemon, which the executor started.
                victim = pid if what == "process" else parent_of(parent_of(pid))
                self.query.shoot(victim)
        finally:
            holds.release()

    # ----------------------------------------------------------------------------

    def _members(self) -> dict[str, Role]:
        """Two of each group."""
        return {
            f"{protocol}-{number}": Role(
                partial(self._child, member, protocol, f"{number}")
            )
            for protocol in PROTOCOLS
            for number in (1, 2)
        }

    def _child(self, target: Callable[..., None], *arguments: Any) -> Child:
        return Child(target, self.place, self._native(), *arguments)

    def _native(self) -> bool:
        return self.place.native is not None and self.chance.random() < 0.5

    def _node(self) -> Node:
        return self.chance.choice(self.cluster.nodes)

    @contextlib.contextmanager
    def _down(self, nodes: Sequence[Node]) -> Iterator[None]:
        for node in nodes:
            node.end(signal.SIGKILL)
        yield
        for node in nodes:
            node.start(os.getpid())
        self._await_brokers()

    def _fail_brokers(self) -> None:
        kinds = [self.broker_killed, self.broker_stopped, self.broker_cut_off]
        self.chance.choice(kinds)()

    def _kill_one(self, word: str) -> None:
        self._wait(0, 1)
        found = self.query.processes(word)
        if found:
            self.query.shoot(self.chance.choice(found))

    def _held(self, name: str) -> int | None:
        """The process that is held; None if none came to the step in time."""
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            pid = self.place.holds(name).reached()
            if pid is not None:
                return pid
            self._revive()
            time.sleep(0.02)
        return None

    def _end_superseded(self, name: str, old: Child) -> None:
        """It ends by itself, where one writes at a time; members share."""
        if name not in ("write", "copy"):
            self._wait(0, 3)
            old.end()
            return
        deadline = time.monotonic() + PATIENCE
        while old.process.is_alive() and time.monotonic() < deadline:
            self._revive()
            # The successor may have ended by an error before the old one woke: then
            # the old one writes on, until the next one comes.
            time.sleep(0.1)
        status = old.join()
        if status:
            msg = f"{name} was superseded and ended with {status}"
            raise AssertionError(msg)

    def _revive(self) -> None:
        for role in self.roles.values():
            role.revive()
        self.query.revive()

    def _wait(self, least: float, most: float) -> None:
        time.sleep(self.chance.uniform(least, most))

    def _epoch(self) -> int:
        try:
            return int(self.place.file("epoch").read_text())
        except (FileNotFoundError, ValueError):
            return -1

    def _await(self, done: Callable[[], bool], what: str, *, fail: bool = True) -> None:
        deadline = time.monotonic() + PATIENCE
        while not done():
            if time.monotonic() > deadline:
                if not fail:
                    return
                msg = f"{what} does not go on"
                raise TimeoutError(msg)
            self._revive()
            time.sleep(0.1)

    def _await_end(self, name: str) -> None:
        """Wait until a role has ended well, however often brokers end it before."""
        role, ends = self.roles[name], self.place.file("ends")
        while True:
            before = ends.read_text().count(name) if ends.exists() else 0
            role.child.process.join(PATIENCE)
            if role.child.process.is_alive():
                raise TimeoutError(self._stuck(name, role))
            status = role.child.join()
            if status:
                msg = f"{name} ended with {status}"
                raise AssertionError(msg)
            if before == (ends.read_text().count(name) if ends.exists() else 0):
                return
            role.succeed()

    def _stuck(self, name: str, role: Role) -> str:
        """What a role does that does not end."""
        os.kill(role.pid, signal.SIGUSR1)
        time.sleep(1)
        found = [self.place.file(f"{name}.{end}") for end in ("log", "stacks")]
        return "\n".join([f"{name} does not end", *(f.read_text() for f in found)])

    def _await_brokers(self) -> None:
        client, deadline = quiet_admin(self.cluster.bootstrap), time.monotonic() + 120
        while True:
            with contextlib.suppress(Exception):
                if len(client.list_topics(timeout=2).brokers) == len(self.hosts):
                    return
            if time.monotonic() > deadline:
                self.cluster.wait()  # raises an error with the logs
                return
            time.sleep(0.1)


WEIGHTS: Final = {
    "broker_killed": 3,
    "two_brokers_killed": 1,
    "broker_stopped": 3,
    "broker_cut_off": 4,
    "brokers_separated": 2,
    "client_killed": 2,
    "client_stopped": 2,
    "client_held": 5,
    "driver_killed": 1,
    "executor_killed": 1,
    "worker_killed": 1,
    "query_held": 3,
}
"""How often things happen, relative to each other."""


def _lossless(judged: Callable[[], Verdict]) -> bool:
    return not judged().lost


def say(line: str) -> None:
    sys.stderr.write(f"kafka3: {line}\n")


def prove(rounds: int, seed: int, place: Path) -> Verdict:
    """Disturb brokers and clients so many times."""
    missing = missing_network() or missing_java()
    if missing is not None:
        return Verdict(notes=[f"kafka3: NOT PROVED, {missing}"])
    printed = in_a_network("tests.kafka.chaos_proving", rounds, seed, place)
    return Verdict(**json.loads(printed.splitlines()[-1]))


def main() -> None:
    rounds, seed, folder = sys.argv[1:]
    try:
        proof = Proof(Path(folder), int(seed))
        with proof.running():
            for _ in range(int(rounds)):
                proof.disturb()
            verdict = proof.finish()
        verdict.kills = int(rounds)
    except Unavailable as reason:
        verdict = Verdict(notes=[f"kafka3: NOT PROVED, {reason}"])
    sys.stdout.write(json.dumps(dataclasses.asdict(verdict)) + "\n")


if __name__ == "__main__":
    main()
