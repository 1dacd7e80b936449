"""R2, R11: other processes, new or forked, read the same stream."""

from __future__ import annotations

import os
import pickle
import signal
import tempfile
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streamfactory.conformance.bench import BYTES, SLICE
from streamfactory.conformance.case import case
from streamfactory.conformance.children import elsewhere
from streamfactory.conformance.expectations import expect, require
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
    number, factory = bench.create(messages=50), bench.factory()
    info, mine = bench.infos()[number], bench.fetch_all(number)
    bench.note("read in another process")
    found, answers = elsewhere(_spawned, factory, bench.partition(number))
    if factory.SPARSE_OFFSETS:
        # Offsets without a message may have been added: a log has other writers.
        require(found.latest >= info.latest, f"latest fell from {info} to {found}")
        found = replace(found, latest=info.latest)
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
    number, factory = bench.create(messages=50), bench.factory()
    mine = bench.fetch_all(number)
    bench.note("read, fork and read on in another process")
    found = elsewhere(_forked, factory, bench.partition(number))
    for side, answers in found.items():
        if side == "child" and not factory.SURVIVES_FORK:
            expect(answers, _REFUSED, "what a call in the child raised")
            continue
        rows = [row for start, had in answers for row in bench.rows_of(had, start)]
        expect(rows, mine, f"rows of the {side}")


_REFUSED: Final = "Unsupported, with a remedy"


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
    at, limits = info.earliest, FetchLimits(7, BYTES, SLICE)
    deadline = time.monotonic() + _FORKED / 2
    while at < info.latest and time.monotonic() < deadline:
        answers.append((at, consumer.fetch_messages(at, None, limits)))
        at = answers[-1][1].next_offset
    return answers
