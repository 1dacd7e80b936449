"""The kit passes for what is claimed, which is nothing but order and true ends."""

from __future__ import annotations

from tests.conformance.parts import check_live_writing

from streamfactory.backends.socket.harness import SocketHarness
from streamfactory.conformance.subject import find_subject
from streamfactory.conformance.suite import ConformanceSuite


class TestSocket(ConformanceSuite):
    harness = SocketHarness


def test_writing_is_proved_as_far_as_it_is_claimed() -> None:
    check_live_writing(find_subject("socket"))
