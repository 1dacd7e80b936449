"""R2, R11: other processes, new or forked, read the same stream."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streamfactory.conformance.case import case
from streamfactory.conformance.expectations import Excluded, Mismatch, expect
from streamfactory.spi import (
    ConsumerFactory,
    Fetched,
    FetchLimits,
    MetadataProvider,
    Partition,
    PartitionLevelConsumer,
    Unsupported,
)

if TYPE_CHECKING:
    from streamfactory.conformance.bench import Bench

_CHILD: Final = 30.0
"""Seconds that another process may take, its start included."""
_FORKED: Final = 15.0

Answers = list[tuple[int, Fetched]]
"""Starts, and what was answered: the parent turns them into numbers."""


@case(
    "R2",
    claims=("replayable", "shared"),
    slow=True,
    hint="offsets or rows depend on the state of this process",
)
def another_process_reads_the_same(bench: Bench) -> None:
    """A factory pickled into a new process answers the same bounds and rows."""
    bench.create(messages=50)
    number, factory = bench.first(), bench.factory()
    info = bench.infos()[number]
    mine = bench.fetch_all(number, info.earliest)
    found, answers = _elsewhere(bench, "spawned", factory, number)
    expect(found, info, "bounds in another process")
    theirs = [
        row for start, fetched in answers for row in bench.rows_of(fetched, start)
    ]
    expect(theirs, mine, "rows in another process")


@case(
    "R11",
    claims=("replayable", "shared"),
    slow=True,
    hint="a connection, a lock or a thread is used on both sides of the fork",
)
def reading_continues_after_a_fork(bench: Bench) -> None:
    """After a fork both the child, by new objects, and the parent read everything.

    Where ``SURVIVES_FORK`` is false, the child is refused at once instead.
    """
    if not hasattr(os, "fork"):
        msg = "this system cannot fork"
        raise Excluded(msg)
    bench.create(messages=50)
    number, factory = bench.first(), bench.factory()
    mine = bench.fetch_all(number, bench.infos()[number].earliest)
    for side, answers in _elsewhere(bench, "forked", factory, number).items():
        if side == "child" and not factory.SURVIVES_FORK:
            expect(answers, _REFUSED, "what a call in the child raised")
            continue
        rows = [row for start, found in answers for row in bench.rows_of(found, start)]
        expect(rows, mine, f"rows of the {side}")


_REFUSED: Final = "Unsupported, with a remedy"


def _elsewhere(bench: Bench, what: str, factory: ConsumerFactory, number: int) -> Any:
    """Run one of the functions below in a separate process."""
    bench.note(f"{what}(partition={number})")
    program = f"from {__name__} import serve; serve()"
    paths = os.pathsep.join(path for path in sys.path if path)
    try:
        done = subprocess.run(  # noqa: S603 - this interpreter, and our own words
            [sys.executable, "-c", program],
            input=pickle.dumps((what, factory, bench.partition(number))),
            capture_output=True,
            timeout=_CHILD,
            env={**os.environ, "PYTHONPATH": paths},
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        msg = f"another process did not return within {_CHILD:.0f} s"
        raise Mismatch(msg) from error
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        msg = f"another process failed: {''.join(last) or done.returncode}"
        raise Mismatch(msg)
    return pickle.loads(done.stdout)  # noqa: S301 - our own


def serve() -> None:
    """What the other process does: a function of this module, by standard input."""
    what, factory, partition = pickle.load(sys.stdin.buffer)  # noqa: S301 - our own
    answer = {"spawned": _spawned, "forked": _forked}[what](factory, partition)
    sys.stdout.buffer.write(pickle.dumps(answer))
    sys.stdout.flush()
    factory.close()


def _spawned(factory: ConsumerFactory, partition: Partition) -> Any:
    provider = factory.create_metadata_provider("spawned")
    consumer = factory.create_partition_level_consumer("spawned", partition)
    try:
        return _info(provider, partition), _drain(provider, consumer, partition)
    finally:
        consumer.close()
        provider.close()


def _forked(factory: ConsumerFactory, partition: Partition) -> dict[str, Answers]:
    provider = factory.create_metadata_provider("parent")
    consumer = factory.create_partition_level_consumer("parent", partition)
    _drain(provider, consumer, partition)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # Threads are there, Arrow's at least: that a fork meets them is the case.
        warnings.simplefilter("ignore", DeprecationWarning)
        found = Path(folder, "answers")
        child = os.fork()
        if not child:
            _as_child(factory, provider, partition, found)
        answers = {"parent": _drain(provider, consumer, partition)}
        status = _wait(child)
        error = pickle.loads(found.read_bytes())  # noqa: S301 - our own
    if status:
        msg = f"in the child of a fork: {error}"
        raise RuntimeError(msg)
    answers["child"] = error
    consumer.close()
    provider.close()
    return answers


def _as_child(
    factory: ConsumerFactory, provider: MetadataProvider, partition: Partition, to: Path
) -> None:
    """The inherited factory and provider reopen; a consumer is created again."""
    status = 1
    try:
        consumer = factory.create_partition_level_consumer("child", partition)
        to.write_bytes(pickle.dumps(_drain(provider, consumer, partition)))
        status = 0
    except Unsupported as error:
        to.write_bytes(pickle.dumps(_REFUSED if error.remedy else str(error)))
        status = 0
    except BaseException as error:  # noqa: BLE001 - nothing of the parent's runs here
        to.write_bytes(pickle.dumps(f"{type(error).__name__}: {error}"))
    finally:
        os._exit(status)


def _wait(child: int) -> int:
    deadline = time.monotonic() + _FORKED
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    msg = f"the child of a fork hangs: no answer within {_FORKED:.0f} s"
    raise RuntimeError(msg)


def _info(provider: MetadataProvider, partition: Partition) -> Any:
    answer = provider.fetch_partitions([partition.topic], ())
    return next(info for info in answer if info.partition == partition)


def _drain(
    provider: MetadataProvider, consumer: PartitionLevelConsumer, partition: Partition
) -> Answers:
    info, answers = _info(provider, partition), []
    at, limits = info.earliest, FetchLimits(7, 8 * 1024**2, 0.25)
    deadline = time.monotonic() + _FORKED / 2
    while at < info.latest and time.monotonic() < deadline:
        answers.append((at, consumer.fetch_messages(at, None, limits)))
        at = answers[-1][1].next_offset
    return answers
