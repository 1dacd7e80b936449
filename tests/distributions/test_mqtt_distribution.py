"""``streamfactory-mqtt`` from its wheel: its own tests and the kit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.distributions import journeys
from tests.distributions.proving import prove_by_own_kills
from tests.examples.running import EXAMPLES, printed, shown

from streamfactory.conformance import LocalServer

if TYPE_CHECKING:
    from tests.distributions.installing import Installed

TREE = Path(__file__).parents[2] / "distributions" / "streamfactory-mqtt"


def test_its_own_tests_pass(mqtt_server: Installed, tmp_path: Path) -> None:
    chosen = "not onformance and not kills"
    out = journeys.run_own_tests(mqtt_server, TREE, tmp_path, kills=0, chosen=chosen)
    assert " passed" in out
    assert "skipped" not in out


@pytest.mark.long("starts a program for each kill")
def test_receivers_that_are_killed_lose_nothing(
    mqtt_server: Installed, tmp_path: Path
) -> None:
    verdict = prove_by_own_kills(mqtt_server, "mqtt", tmp_path, rounds=5)
    assert verdict.good
    assert verdict.kills == 5


@pytest.mark.long("a Spark of its own")
@pytest.mark.usefixtures("own_spark")
def test_the_sensor_example_does_what_its_page_shows(
    mqtt_server: Installed, tmp_path: Path
) -> None:
    (tmp_path / "broker").mkdir()
    (tmp_path / "run").mkdir()
    variables = [f"{key}={text}" for key, text in mqtt_server.environment.items()]
    command = ("env", *variables, "mosquitto", "-p")
    broker = LocalServer(tmp_path / "broker", lambda port: [*command, str(port)])
    broker.start()
    try:
        out = mqtt_server.run(
            "mqtt_sensors",
            cwd=tmp_path / "run",
            path=[str(EXAMPLES)],
            MQTT=broker.address,
        )
    finally:
        broker.close()
    assert printed(out) == shown("python examples/mqtt_sensors.py")


@pytest.mark.long("the whole kit")
def test_it_passes_the_kit(mqtt_server: Installed, tmp_path: Path) -> None:
    kit = journeys.run_kit(mqtt_server, "mqtt", tmp_path)
    assert kit.failed == []
    assert kit.passed > 40
