"""Errors on the wire: what docs/flight-protocol.md has is what the server sends."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.flight as fl
import pytest

from streamfactory.backends.flight.protocol.failures import (
    _BY_CODE,
    from_status,
    to_status,
)
from streamfactory.spi import StreamError

if TYPE_CHECKING:
    from streamfactory.wiring.serving.process import ServerProcess

PAGE = Path(__file__).parents[2] / "docs" / "flight-protocol.md"
STATUS: dict[str, type[fl.FlightError]] = {
    "FAILED": fl.FlightServerError,
    "TIMED_OUT": fl.FlightTimedOutError,
    "UNAUTHORIZED": fl.FlightUnauthorizedError,
    "INTERNAL": fl.FlightInternalError,
    "UNAVAILABLE": fl.FlightUnavailableError,
    "UNAUTHENTICATED": fl.FlightUnauthenticatedError,
}


def _shown() -> dict[str, str]:
    """The Flight status of each code, by the table."""
    rows = re.findall(
        r"^\| \d+ `\w+` \| `(\w+)` \| (.+?) \| .+ \|$", PAGE.read_text(), re.MULTILINE
    )
    return {
        code: status
        for status, codes in rows
        if status != "UNAUTHENTICATED"
        for code in re.findall(r"`(\w+)`", codes)
        if code != "retry_after_ms"
    }


def test_every_code_has_the_status_of_the_table() -> None:
    shown = _shown()
    assert sorted(shown) == sorted(_BY_CODE)
    for code, status in shown.items():
        kind = _BY_CODE[code]
        error = kind.__new__(kind)  # some take arguments of their own
        StreamError.__init__(error, "what", remedy="remedy")
        error.problems = ()  # type: ignore[attr-defined]
        sent = to_status(error)
        assert type(sent) is STATUS[status], code
        assert json.loads(sent.extra_info)["code"] == code


def test_an_internal_error_of_the_server_comes_back_as_what_it_was() -> None:
    for code in ("corrupt_data", "storage_failed", "untranslated"):
        kind = _BY_CODE[code]
        found = from_status(to_status(kind("the disk is full", remedy="mend it")))
        assert type(found) is kind
        assert (found.what, found.remedy) == ("the disk is full", "mend it")


def test_the_worked_error_is_what_a_server_sends(flight_server: ServerProcess) -> None:
    page = PAGE.read_text()
    [encoded] = re.findall(r"^grpc-status-details-bin: (\w+)$", page, re.MULTILINE)
    shown = base64.b64decode(encoded + "=" * (-len(encoded) % 4))
    assert f"```json\n{shown.decode()}\n```" in page
    ticket = fl.Ticket(b'{"v":1,"topic":"visits","partition":0}')
    with (
        fl.connect(flight_server.location) as client,
        pytest.raises(fl.FlightServerError) as caught,
    ):
        client.do_get(ticket).read_all()
    sent, expected = json.loads(caught.value.extra_info), json.loads(shown)
    # Which topics there are is up to the server.
    assert sent.pop("what").startswith(expected.pop("what").partition(";")[0])
    assert sent == expected
