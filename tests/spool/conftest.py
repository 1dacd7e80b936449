"""Transports that forget, and receivers of them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from tests.spool.receiving import receiving, specimens, spooled

from streamfactory.conformance.specimens import forgetful, redelivering

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from streamfactory.wiring.plugins.manager import PluginManager
    from streamfactory.wiring.receiving.receiver import StreamReceiver


@pytest.fixture
def plugins() -> PluginManager:
    return specimens()


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[redelivering.RedeliveringHarness]:
    harness = redelivering.RedeliveringHarness(tmp_path)
    harness.create(1)
    yield harness
    harness.close()


@pytest.fixture
def forgets(tmp_path: Path) -> Iterator[forgetful.ForgetfulHarness]:
    harness = forgetful.ForgetfulHarness(tmp_path)
    harness.create(1)
    yield harness
    harness.close()


@pytest.fixture
def receive(
    tmp_path: Path, plugins: PluginManager
) -> Iterator[Callable[..., StreamReceiver]]:
    """Begin to receive a harness's stream into the spool of the test."""
    with contextlib.ExitStack() as stack:

        def begin(harness: Any, **options: str) -> StreamReceiver:
            receiver = receiving(spooled(tmp_path, harness, **options), plugins)
            stack.callback(receiver.close)
            return receiver

        yield begin
