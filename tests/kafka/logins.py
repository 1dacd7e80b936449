"""Readers that log in, or are refused."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.kafka.conftest import stream_of
from tests.kafka.streams import drain, opened, reading, values

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.kafka.broker import Addresses

    from streamfactory.spi import StreamError

PROP = "stream.kafka.consumer.prop."


def prop(**given: str) -> dict[str, str]:
    return {PROP + key.replace("_", "."): value for key, value in given.items()}


def certificate(kafka: Addresses, name: str) -> str:
    assert kafka.certificates is not None
    return str(Path(kafka.certificates, name))


def reads(address: str | None, topic: str, more: Mapping[str, str]) -> None:
    assert address is not None
    with reading({**stream_of(address, topic), **more}) as reader:
        assert values(drain(reader, rows=1)) == [b"secret matters"]


def refusal(
    error: type[StreamError], broker: str | None, topic: str, more: dict[str, str]
) -> str:
    """Errors of readers without permission."""
    assert broker is not None
    with (
        opened(stream_of(broker, topic) | more) as source,
        pytest.raises(error) as caught,
    ):
        source.metadata.partitions()
    text = str(caught.value)
    assert broker in text
    return text
