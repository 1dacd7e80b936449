"""Options of built-in types are validated without Arrow and without any client."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields

import pytest

from streamfactory.spi import (
    Backend,
    ConsumerFactory,
    MessageDecoder,
    MessageEncoder,
    ProducerFactory,
    StreamServer,
    TopicAdmin,
)
from streamfactory.spi.hooks import BACKENDS, DECODERS, import_all, is_imported
from streamfactory.wiring.plugins.descriptors import checked
from streamfactory.wiring.plugins.manager import OWN_DISTRIBUTION, default_manager

HEAVY = """
confluent_kafka deltalake fastavro google.protobuf hudi msgspec numpy pandas ptars
pyarrow pyiceberg pyruhvro pyspark zmq
"""
PLUGINS = [
    (group, info.name)
    for group in (BACKENDS, DECODERS)
    for info in default_manager().list(group)
    if info.distribution == OWN_DISTRIBUTION
]


def test_loading_any_built_in_imports_neither_arrow_nor_a_client() -> None:
    code = (
        "import json, sys\n"
        "from streamfactory.wiring.plugins.manager import default_manager\n"
        "plugins = default_manager()\n"
        "found = {}\n"
        f"for group, name in json.loads({json.dumps(json.dumps(PLUGINS))}):\n"
        f"    load = plugins.backend if group == {BACKENDS!r} else plugins.decoder\n"
        "    load(name)\n"
        f"    found[name] = sorted({set(HEAVY.split())!r} & set(sys.modules))\n"
        "print(json.dumps(found))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    assert len(found) > 15
    assert {name: heavy for name, heavy in found.items() if heavy} == {}


@pytest.mark.parametrize("name", [name for group, name in PLUGINS if group == BACKENDS])
def test_a_type_imports_later_what_its_descriptor_names(name: str) -> None:
    found = default_manager().backend(name)
    import_all(found)
    assert all(is_imported(found, field.name) for field in fields(found))
    assert issubclass(found.consumer_factory or ConsumerFactory, ConsumerFactory)
    assert issubclass(found.producer_factory or ProducerFactory, ProducerFactory)
    assert issubclass(found.topic_admin or TopicAdmin, TopicAdmin)
    assert issubclass(found.server or StreamServer, StreamServer)
    # The columns that a producer stores are checked once its class is imported.
    assert checked(Backend, name, found) is found


@pytest.mark.parametrize("name", [name for group, name in PLUGINS if group == DECODERS])
def test_a_decoder_imports_later_what_its_descriptor_names(name: str) -> None:
    found = default_manager().decoder(name)
    import_all(found)
    assert issubclass(found.decoder or MessageDecoder, MessageDecoder)
    assert issubclass(found.encoder or MessageEncoder, MessageEncoder)
