"""The conformance kit on ``flight``, over a server in another process."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.certificates import issue_certificates
from tests.conformance.parts import chapters, failures, run_part

from streamfactory.backends.flight.harness import FlightHarness
from streamfactory.conformance.suite import ConformanceSuite

if TYPE_CHECKING:
    from collections.abc import Mapping


class TestFlight(ConformanceSuite):
    """Every case."""

    harness = FlightHarness


class TlsHarness(FlightHarness):
    """The same over TLS, with certificates of clients checked."""

    @classmethod
    def _server_settings(cls) -> Mapping[str, str]:
        folder = _certificates()
        return {
            "tls.certificate": f"{folder}/server.pem",
            "tls.key": f"{folder}/server.key",
            "tls.client.ca": f"{folder}/ca.pem",
        }

    @classmethod
    def _stream_options(cls) -> Mapping[str, str]:
        folder = _certificates()
        return {
            "tls.ca": f"{folder}/ca.pem",
            "tls.certificate": f"{folder}/client.pem",
            "tls.key": f"{folder}/client.key",
        }


@cache
def _certificates() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="flight-certificates-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    issue_certificates(folder)
    return folder


@pytest.mark.repeated(
    "parts of the kit once more, over TLS",
    shown_by="tests/flight/test_flight_security.py::test_tls_protects_reading_and_writing",
)
def test_connections_over_tls_behave_as_without() -> None:
    """TLS is seen where connections are made, break, are closed and are forked, where
    files and secrets are passed on, and once for rows in each direction."""
    parts = ("connections", "lifecycle", "isolation", "processes", "harness")
    assert failures(run_part(TlsHarness, chapters(*parts))) == {}


def test_the_server_of_the_tls_harness_speaks_tls(tmp_path: Path) -> None:
    harness = TlsHarness(tmp_path)
    location = harness.properties()["stream.flight.location"]
    harness.close()
    assert location.startswith("grpc+tls://")
