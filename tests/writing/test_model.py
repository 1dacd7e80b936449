"""Any order of staging, deciding, repeating, aborting, dying and forgetting."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.proving.tiers import sample

from streamfactory.backends.memory import store
from streamfactory.spi import CommitMessage, EpochMarkerLost, StreamTimeout
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.plugins.manager import PluginManager
from streamfactory.wiring.testing.faults import Faults
from streamfactory.wiring.writing.sink import Sink

SCHEMA = pa.schema({"n": pa.int64()})
PLUGINS = PluginManager()


class Epochs(RuleBasedStateMachine):
    """A driver that writes epoch n as the rows 10n to 10n+2, one a task."""

    def __init__(self) -> None:
        super().__init__()
        self.store = uuid.uuid4().hex
        store(self.store).create("t", SCHEMA)
        self.rows: list[int] = []  # what has to be there
        self.epoch = 0  # the next to decide
        self.landed = False  # it is there, and the driver does not know
        self.remembered = True  # by the sink
        self.start()

    def start(self, **options: str) -> None:
        """The driver's process begins, with nothing in its hands."""
        self.staged: dict[int, CommitMessage] = {}
        self.sure = False  # that the epoch before was decided by this very process
        given = {"streamType": "memory", "stream.memory.topic.name": "t"}
        given |= {"stream.memory.store": self.store, "epoch.mismatch": "fail"}
        configured = configure(from_mapping({**given, **options}), PLUGINS, use="write")
        self.faults = Faults()
        self.sink = Sink(configured, wrap=self.faults.around_producers)
        self.committer = self.sink.committer(writer_id="w")

    def stage(self, task: int, epoch: int) -> CommitMessage:
        writer = self.sink.writer(SCHEMA, writer_id="w", epoch=epoch, task=task)
        rows = {"n": [10 * epoch + task]}
        writer.write(pa.RecordBatch.from_pydict(rows, schema=SCHEMA))
        message = writer.commit()
        writer.close()
        return message

    def stage_all(self) -> list[CommitMessage]:
        for task in range(3):
            self.staged.setdefault(task, self.stage(task, self.epoch))
        return [self.staged[task] for task in range(3)]

    def decided(self) -> None:
        if not self.landed:
            self.rows += [10 * self.epoch + task for task in range(3)]
        self.epoch += 1
        self.staged, self.landed = {}, False
        self.sure = self.remembered = True

    @rule(task=st.integers(0, 2))
    def a_task_stages(self, task: int) -> None:
        self.staged[task] = self.stage(task, self.epoch)

    @rule()
    def commit(self) -> None:
        lost = self.epoch > 0 and not self.remembered and not self.sure
        if lost:
            with pytest.raises(EpochMarkerLost):
                self.committer.commit(self.epoch, self.stage_all())
            self.start(**{"epoch.adopt": str(self.epoch)})
        made = self.committer.commit(self.epoch, self.stage_all())
        assert made == (not self.landed)
        self.decided()

    @rule()
    @precondition(lambda self: self.remembered or self.sure or not self.epoch)
    def commit_and_hear_nothing(self) -> None:
        messages = self.stage_all()
        self.faults.drop = 1.0
        with pytest.raises(StreamTimeout):
            self.committer.commit(self.epoch, messages)
        self.faults.drop = 0.0
        if not self.landed:
            self.rows += [10 * self.epoch + task for task in range(3)]
        self.landed = self.remembered = True
        self.sure = False

    @rule()
    @precondition(lambda self: self.epoch and self.remembered and not self.landed)
    def repeat(self) -> None:
        again: Any = [self.stage(task, self.epoch - 1) for task in (2, 0, 1)]
        assert not self.committer.commit(self.epoch - 1, again)
        self.sure = True

    @rule()
    def abort(self) -> None:
        self.committer.abort(self.epoch, [*self.staged.values(), None])
        self.staged = {}

    @rule()
    def die_and_start_again(self) -> None:
        self.start()

    @rule()
    @precondition(lambda self: not self.landed)
    def idle_until_forgotten(self) -> None:
        # Not while a verdict is unknown: then nobody could tell old from new.
        store(self.store).open("t").forget(-1)
        self.remembered = False

    @invariant()
    def every_epoch_is_there_once_and_whole(self) -> None:
        log = store(self.store).open("t")
        found: list[int] = []
        while len(found) < log.bounds()[0].latest:
            part = log.read(0, len(found), max_rows=1000, max_bytes=2**20)
            assert part.rows is not None
            found += part.rows.column("n").to_pylist()
        assert found == self.rows

    def teardown(self) -> None:
        self.committer.close()
        self.sink.close()


@pytest.mark.parametrize(
    "examples",
    sample(
        [25, 80],
        "more orders",
        shown_by="tests/writing/test_model.py::test_any_order_of_events_leaves_every_epoch_once",
    ),
)
def test_any_order_of_events_leaves_every_epoch_once(examples: int) -> None:
    given = settings(max_examples=examples, stateful_step_count=30)
    run_state_machine_as_test(Epochs, settings=given)
