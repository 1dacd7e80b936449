"""Options of built-in types are validated without Arrow and without any client."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from streamfactory.spi.hooks import BACKENDS, DECODERS, import_all, is_imported
from streamfactory.wiring.plugins.descriptors import checked
from streamfactory.wiring.plugins.manager import OWN_DISTRIBUTION, default_manager

HEAVY = """
confluent_kafka deltalake fastavro google.protobuf hudi msgspec numpy pandas ptars
pyarrow pyiceberg pyruhvro pyspark zmq
"""
LAZY = {
    "Backend": (
        *("consumer_factory", "producer_factory", "topic_admin", "server"),
        "translate",
    ),
    "Decoder": ("decoder", "encoder"),
}
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


@pytest.mark.parametrize(
    ("group", "name"), PLUGINS, ids=[f"{g.split('.')[-1]}-{n}" for g, n in PLUGINS]
)
def test_what_a_built_in_imports_later_is_what_its_descriptor_promises(
    group: str, name: str
) -> None:
    plugins = default_manager()
    found = (plugins.backend if group == BACKENDS else plugins.decoder)(name)
    import_all(found)
    assert all(is_imported(found, field) for field in LAZY[type(found).__name__])
    for field in LAZY[type(found).__name__]:
        assert callable(getattr(found, field) or str)
    # The columns that a producer carries are checked once its class is imported.
    assert checked(type(found), name, found) is found
