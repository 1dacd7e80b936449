"""Options of a Flight stream that exclude or require one another, found offline."""

from __future__ import annotations

import pytest

from streamfactory.wiring.config.configure import inspect
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.plugins.manager import default_manager

BASE = {
    "streamType": "flight",
    "stream.flight.topic.name": "clicks",
    "stream.flight.location": "grpc://127.0.0.1:8815",
}


@pytest.mark.parametrize(
    ("options", "use", "expected"),
    [
        (
            {"location": "grpc://192.0.2.1:8815", "token": "${env:HOME}"},
            "read",
            "error: stream.flight.token: would be sent to grpc://192.0.2.1:8815 in the",
        ),
        (
            {"location": "grpc+tls://192.0.2.1:8815", "tls.key": "/key.pem"},
            "read",
            "error: stream.flight.tls.key: tls.certificate and tls.key belong together",
        ),
        (
            {"tls.ca": "/ca.pem"},
            "read",
            "warning: stream.flight.tls.ca: has no effect: no location is grpc+tls",
        ),
        (
            {"protocol": "plain"},
            "write",
            "error: stream.flight.protocol: plain Flight servers are read-only",
        ),
        (
            {"plain.deterministic": "true"},
            "read",
            "warning: stream.flight.plain.deterministic: has no effect without",
        ),
        (
            {"location": "127.0.0.1:8815"},
            "read",
            "error: stream.flight.location: '127.0.0.1:8815' is not grpc://host:port",
        ),
    ],
)
def test_what_does_not_fit_together_is_reported(
    options: dict[str, str], use: str, expected: str
) -> None:
    given = {f"stream.flight.{key}": text for key, text in options.items()}
    definition = from_mapping({**BASE, **given}, "clicks")
    found = inspect(definition, default_manager(), use=use)
    problems = [*found.errors, *found.warnings]
    texts = [f"{problem.level}: {problem}" for problem in problems]
    assert any(line.startswith(expected) for line in texts), texts


def test_nothing_is_wrong_with_the_least() -> None:
    found = inspect(from_mapping(BASE, "clicks"), default_manager(), use="read")
    assert not [*found.errors, *found.warnings]


def test_group_on_a_plain_server_needs_a_folder_for_its_checkpoints() -> None:
    given = {
        **BASE,
        "stream.flight.protocol": "plain",
        "stream.flight.consumer.type": "highlevel",
        "group.id": "g",
    }
    found = inspect(from_mapping(given, "clicks"), default_manager(), use="read")
    (problem,) = found.errors
    assert str(problem) == (
        "stream.flight.consumer.type: a plain Flight server stores no checkpoints of "
        "groups; set checkpoint.location [argument]"
    )
    given["checkpoint.location"] = "kept"
    found = inspect(from_mapping(given, "clicks"), default_manager(), use="read")
    assert not found.errors
