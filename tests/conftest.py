"""What every test can rely on: no setting of the developer's machine reaches it."""

from __future__ import annotations

import gc
import os
import signal
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from tests.proving import forking, scratch, tiers
from tests.proving.compiled import built_core, compiled, way
from tests.proving.costs import Costs
from tests.proving.generated import FACTOR, cases
from tests.proving.java import quick_options
from tests.proving.sessions import (
    catalogue,
    java_runs,
    object_server,
    own_spark,
    spark,
    spark_log,
)

from streamfactory.compiled import core as loading
from streamfactory.spi.references import FOLDERS
from streamfactory.wiring.core.guard import log_once

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = [
    "built_core",
    "catalogue",
    "compiled",
    "object_server",
    "own_spark",
    "spark",
    "spark_log",
    "way",
]

# Shared machines are slow at times, and a failure has to come again when asked for.
settings.register_profile(
    "house",
    deadline=None,
    derandomize=FACTOR not in os.environ,  # it would ignore the seed
    database=None,
    max_examples=cases(100),
)
settings.load_profile("house")


@pytest.fixture(autouse=True)
def isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of ours is set but one, the catalogue is empty, no warning logged.

    The compiled core is off, whether it is installed or not; see `compiled`.
    """
    monkeypatch.setattr(loading, "load", lambda: "off in tests")
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", quick_options())
    ours = {name for name in os.environ if name.startswith("STREAMFACTORY_")}
    for name in ours - {FOLDERS}:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    log_once.cache_clear()


@pytest.fixture(autouse=True)
def no_java(request: pytest.FixtureRequest) -> Iterator[None]:
    """No test but those of the shared session starts Java in this process.

    The shared session would use that Java, without its own environment and options.
    """
    before = java_runs()
    yield
    if not before and java_runs() and "spark" not in request.fixturenames:
        pytest.fail("starts Java in this process: start it in a process of its own")


@pytest.fixture
def executed() -> Iterator[None]:
    """Programs are executed and not forked: the test is about how they start."""
    with forking.executed():
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    tiers.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    forking.install()
    scratch.use_memory()
    scratch.allow_secrets()
    # A background job of a shell ignores it, and so would the processes of tests.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    tier = config.getoption("tier")
    if tier is None:
        return
    config.pluginmanager.register(Costs(tiers.COMPONENTS))
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(tiers.Times(tier))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files without tests of the tier, before they are imported."""
    if collection_path.suffix != ".py":
        return None
    return None if tiers.may_have(config.getoption("tier"), collection_path) else True


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect tests without collecting garbage, which takes a quarter of the time.

    What there is then lives as long as the process: collections during tests, of which
    the kit makes several for each case, leave it out.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Iterator[None]:
    tiers.mark(items)
    config.stash[tiers.COLLECTED] = tiers.describe(items)
    tiers.select(config, items)
    yield
    tiers.name_groups(config, items)
