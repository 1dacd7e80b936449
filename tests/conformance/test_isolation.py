"""Secrets, deadlines, processes, absent things: each defect is caught by its case."""

from __future__ import annotations

import logging
import os
import sys
import time
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest
from tests.conformance.waiting import HASTY

from streamfactory.conformance import CASES, Outcome, Subject
from streamfactory.conformance.patience import USUAL, Waits
from streamfactory.conformance.runner import Result, all_cases, run_case
from streamfactory.conformance.specimens import durable, forgetful
from streamfactory.conformance.specimens.durable import DurableHarness
from streamfactory.conformance.specimens.forgetful import ForgetfulHarness
from streamfactory.spi import Backend, Fetched, MetadataProvider, hookimpl
from streamfactory.wiring.plugins.manager import PluginManager

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from streamfactory.spi import ConsumerFactory, PartitionLevelConsumer

all_cases()

DURABLE = durable.streamfactory_backend()
FORGETFUL = forgetful.streamfactory_backend()


def tried(
    name: str,
    correct: Backend,
    harness: Any,
    factory: type[ConsumerFactory],
    waits: Waits = USUAL,
) -> Result:
    """One case on a specimen whose consumer factory is another one."""

    class Plugin:
        @hookimpl
        def streamfactory_backend(self) -> Backend:
            return replace(correct, consumer_factory=factory)

    plugins = PluginManager()
    plugins.register(Plugin())
    backend = plugins.backend(correct.name)
    return run_case(CASES[name], Subject(backend, harness, plugins, waits=waits))


# --- secrets ----------------------------------------------------------------------


class Resolved(forgetful.ForgetfulConsumerFactory):
    """Keeps the password, and shows it."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.password = config.get("password", "")

    def __repr__(self) -> str:
        return f"Resolved({self.password!r})"


class Logging(forgetful.ForgetfulConsumerFactory):
    """Says what it connects with."""

    def create_metadata_provider(self, client_id: str) -> MetadataProvider:
        logging.getLogger("author").debug("login %s", self.config.get("password"))
        return super().create_metadata_provider(client_id)


class Pickled(forgetful.ForgetfulConsumerFactory):
    """Sends the password along."""

    def __init__(self, config: Any, password: str = "") -> None:
        super().__init__(config)
        self.password = password or config.get("password", "")

    def __reduce__(self) -> Any:
        return Pickled, (self.config, self.password)


@pytest.mark.parametrize(
    ("case", "factory", "where"),
    [
        ("a_referenced_secret_is_never_shown", Resolved, "repr of factory"),
        ("a_referenced_secret_is_never_shown", Logging, "log of author"),
        ("a_referenced_secret_is_never_shown", Pickled, "pickle of factory"),
        ("a_literal_secret_is_masked", Resolved, "repr of factory"),
        ("a_literal_secret_is_masked", Logging, "log of author"),
    ],
)
def test_secret_that_shows_is_found(
    case: str, factory: type[ConsumerFactory], where: str
) -> None:
    result = tried(case, FORGETFUL, ForgetfulHarness, factory)
    assert result.outcome is Outcome.FAILED
    assert result.reason.startswith("where a secret shows: expected [], got ")
    assert where in result.reason
    assert not [name for name in os.environ if name.startswith("CONFORMANCE_")]


# --- deadlines --------------------------------------------------------------------


class Late(durable.DurableConsumer):
    def fetch_messages(self, *asked: Any) -> Fetched:
        answer = super().fetch_messages(*asked)
        if answer.rows is None:
            time.sleep(0.15)
        return answer


class LateFactory(durable.DurableConsumerFactory):
    def create_partition_level_consumer(
        self, client_id: str, partition: Any, fields_to_read: Any = None
    ) -> PartitionLevelConsumer:
        return Late(self.config["path"], partition)


def test_late_answer_is_found() -> None:
    result = tried("deadlines_are_honoured", DURABLE, DurableHarness, LateFactory)
    assert result.outcome is Outcome.FAILED
    assert result.reason.startswith("the author's fetch within 0.0 s took 0.1")


# --- what is not there --------------------------------------------------------------


class Untranslated(durable.DurableConsumerFactory):
    def create_partition_level_consumer(
        self, client_id: str, partition: Any, fields_to_read: Any = None
    ) -> PartitionLevelConsumer:
        if partition.id > 100:
            raise KeyError(partition.id)
        return super().create_partition_level_consumer(client_id, partition)


class Leaking(durable.DurableConsumerFactory):
    opened: list[int] = []  # noqa: RUF012 - what the test closes

    def create_partition_level_consumer(
        self, client_id: str, partition: Any, fields_to_read: Any = None
    ) -> PartitionLevelConsumer:
        self.opened.append(os.open(self.config["path"], os.O_RDONLY))
        return super().create_partition_level_consumer(client_id, partition)


class Guessing(durable.DurableConsumerFactory):
    def create_metadata_provider(self, client_id: str) -> MetadataProvider:
        return GuessingMetadata(self.config["path"])


class GuessingMetadata(durable.DurableMetadata):
    def fetch_partitions(self, topics: Any, known: Any) -> Any:
        with suppress(LookupError):
            return super().fetch_partitions(topics, known)
        return []


@pytest.fixture
def leaked() -> Iterator[None]:
    yield
    while Leaking.opened:
        os.close(Leaking.opened.pop())


@pytest.mark.parametrize(
    ("case", "factory", "reason"),
    [
        (
            "failing_constructors_leave_nothing_open",
            Untranslated,
            "no translation for KeyError: 2147483647",
        ),
        (
            "failing_constructors_leave_nothing_open",
            Leaking,
            "rule R10: left open: open ",
        ),
        (
            "an_unknown_topic_is_not_found",
            Guessing,
            "a topic that is not there answered 0 partitions",
        ),
    ],
)
@pytest.mark.usefixtures("leaked")
def test_bad_failure_is_found(
    case: str, factory: type[ConsumerFactory], reason: str
) -> None:
    result = tried(case, DURABLE, DurableHarness, factory, HASTY)
    assert result.outcome is Outcome.FAILED
    assert result.reason.startswith(reason)


# --- processes ----------------------------------------------------------------------

LIARS = """
import os
from streamfactory.conformance.specimens import durable

HERE = os.getpid()


class Local(durable.DurableConsumerFactory):
    def create_metadata_provider(self, client_id):
        return LocalMetadata(self.config["path"])


class LocalMetadata(durable.DurableMetadata):
    def fetch_partitions(self, topics, known):
        if "PARENT" not in globals():
            raise RuntimeError("what I know is in another process")
        return super().fetch_partitions(topics, known)


class Unforked(durable.DurableConsumerFactory):
    def create_partition_level_consumer(self, client_id, partition, fields=None):
        if os.getpid() != HERE:
            raise RuntimeError("the connection is the parent's")
        return super().create_partition_level_consumer(client_id, partition)
"""


@pytest.mark.parametrize(
    ("case", "name", "reason"),
    [
        (
            "another_process_reads_the_same",
            "Local",
            "in another process: RuntimeError: what I know is in another process",
        ),
        (
            "reading_continues_after_a_fork",
            "Unforked",
            (
                "in another process: RuntimeError: in the child of a fork: "
                "RuntimeError: the connection is the parent's"
            ),
        ),
    ],
)
def test_process_that_cannot_be_left_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, name: str, reason: str
) -> None:
    (tmp_path / "liars.py").write_text(LIARS)
    monkeypatch.syspath_prepend(tmp_path)
    liars = import_module("liars")
    monkeypatch.setattr(liars, "PARENT", "here", raising=False)
    result = tried(case, DURABLE, DurableHarness, getattr(liars, name))
    monkeypatch.delitem(sys.modules, "liars")
    assert result.outcome is Outcome.FAILED
    assert result.reason == reason
