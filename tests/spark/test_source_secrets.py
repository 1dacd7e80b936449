"""References to secrets, in the Python workers of Spark."""

from __future__ import annotations

import os
import pickle
import uuid
from typing import TYPE_CHECKING, Any

from tests.proving.schemes import remote_scheme
from tests.proving.sessions import SECRET

from streamfactory.spi import ReferenceScheme, ResolvedReference, StreamConfig
from streamfactory.spi.config import Setting
from streamfactory.spi.hooks import REFERENCES, hookimpl
from streamfactory.wiring.plugins.manager import default_manager

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import SparkSession

OWN = f"${{env:{SECRET}}}"


class OfWorkers:
    """A remote scheme whose values name the process that looked them up."""

    def __init__(self) -> None:
        self.asked = 0

    def look_up(self, what: str, _seconds: float) -> ResolvedReference:
        self.asked += 1
        return ResolvedReference(f"{what} of {os.getpid()}, {self.asked}", 60.0)

    @hookimpl
    def streamfactory_reference(self) -> ReferenceScheme:
        return remote_scheme("of-workers", self.look_up)


def setting(key: str, text: str) -> Setting:
    return Setting(key, key, text, None, "", True)


def in_worker(pickled: bytes) -> tuple[Any, ...]:
    """What a configuration has in the process of a task."""
    config = pickle.loads(pickled)
    default_manager().register(OfWorkers())  # an executor has the package installed
    try:
        first, kept = config["remote"], config["remote"]
        renewed = config.renew(), config["remote"]
        shown = config.mask(f"own {config['own']} remote {first} {renewed[1]}")
        return os.getpid(), config["own"], first, kept, *renewed, shown
    finally:
        default_manager().unregister(REFERENCES, "of-workers")


def test_pickled_configuration_looks_its_secrets_up_in_workers(
    spark: SparkSession,
) -> None:
    pickles = []
    for _ in range(2):  # of their own, as a worker keeps values for later tasks
        remote = setting("remote", f"${{of-workers:{uuid.uuid4().hex}}}")
        settings = {"own": setting("own", OWN), "remote": remote}
        pickles.append(pickle.dumps(StreamConfig("s", "t", settings)))

    def tasks(numbers: Iterable[int]) -> Iterator[tuple[Any, ...]]:
        yield from (in_worker(pickles[number]) for number in numbers)

    found = spark.sparkContext.parallelize([0, 1], 2).mapPartitions(tasks).collect()
    assert len(found) == 2
    for process, own, first, kept, renews, again, shown in found:
        assert process != os.getpid()
        assert own == "c0ntinental-drift"
        assert first == kept
        assert first.endswith(f" of {process}, 1")
        assert renews
        assert again.endswith(f" of {process}, 2")
        assert shown == "own *** remote *** ***"
