"""A broker of tests that ended by itself fails the test that saw it, and no other."""

from __future__ import annotations

import signal
import subprocess
from typing import TYPE_CHECKING

from tests.kafka.broker import Node

if TYPE_CHECKING:
    from pathlib import Path


def test_a_node_that_ended_by_itself_can_be_ended_and_started_again(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path, 1, ())
    node._process = subprocess.Popen(["false"], start_new_session=True)
    node._process.wait(60)
    assert not node.lives
    assert not node.end(signal.SIGKILL)
    assert not node.runs
    assert node.lives
