"""Change events of PostgreSQL and MySQL, made by hand from their documented format."""

from __future__ import annotations

from tests.decoders.decoding import complaints

from streamfactory.decoders.debezium import streamfactory_decoder
from streamfactory.decoders.debezium.harness import DebeziumHarness

PLUGIN = streamfactory_decoder()


def test_the_kit_passes() -> None:
    assert complaints(PLUGIN, DebeziumHarness) == []
