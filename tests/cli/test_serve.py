"""``serve``: settings that cannot be used end the command before it listens."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.proving.commands import Outcome


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "cannot be read"),
        (b"\xff\xfe", "cannot be read"),
        (b"", "cannot be read"),
        (b"[" * 100_000, "cannot be read"),
        (b"[1]", "is not a JSON object"),
        (b"null", "is not a JSON object"),
        (b'{"memory": null}', "memory: is null: omit the key"),
        (b'{"memory": {"a": 1}}', "memory: is an object, expected a string"),
        (b'{"memory": true, "calls": 1.5}', "calls: is a number with a fraction"),
        (b'{"memory": true, "call": 5}', "call: unknown option"),
        (b'{"memory": true, "calls": "many"}', "calls: 'many'"),
        (b'{"memory": true, "address": "0.0.0.0:0"}', "open to the network"),
        (b'{"memory": true, "path": "/srv"}', "needs either path or memory=true"),
    ],
)
def test_a_config_that_cannot_be_used_is_refused(
    streamfactory: Callable[..., Outcome],
    tmp_path: Path,
    content: bytes,
    message: str,
) -> None:
    path = tmp_path / "server.json"
    path.write_bytes(content)
    done = streamfactory("serve", "--config", str(path))
    assert done.status == 2
    assert message in done.err
    assert not done.out


def test_a_config_that_is_missing_is_refused(
    streamfactory: Callable[..., Outcome], tmp_path: Path
) -> None:
    done = streamfactory("serve", "--config", str(tmp_path / "nowhere.json"))
    assert done.status == 2
    assert "cannot be read" in done.err


@pytest.mark.parametrize("option", ["calls", "=5", " =5", ""])
def test_an_option_without_a_key_and_an_equals_sign_is_refused(
    streamfactory: Callable[..., Outcome], option: str
) -> None:
    done = streamfactory("serve", "--memory", "-o", option)
    assert done.status == 2
    assert "wanted KEY=VALUE" in done.err


def test_all_problems_of_a_server_are_reported_together(
    streamfactory: Callable[..., Outcome], tmp_path: Path
) -> None:
    path = tmp_path / "server.json"
    path.write_text(json.dumps({"tls.key": "/key.pem", "memory": True}))
    done = streamfactory(
        "serve",
        "--config",
        str(path),
        "--flight",
        "nonsense",
        "--metrics",
        "0.0.0.0:1",
    )
    assert done.status == 2
    for message in ("tls.key: requires", "address: 'nonsense'", "metrics.address: "):
        assert message in done.err
    assert "[--flight]" in done.err
    assert f"[{path}]" in done.err


def test_a_secret_of_a_server_does_not_show_in_its_errors(
    streamfactory: Callable[..., Outcome],
) -> None:
    done = streamfactory(
        "serve",
        "--path",
        "s3://bucket/topics",
        "-o",
        "storage.secret.key=swordfish",
        "-o",
        "storage.account=x",
        "-o",
        "storage.secret.kye=swordfish",
    )
    assert done.status == 2
    assert "storage.secret.kye: unknown option" in done.err
    assert "swordfish" not in done.err


@pytest.mark.parametrize("settings", [(), ("-o", "allow.remote=true")])
def test_an_address_in_use_is_reported_without_the_messages_of_grpc(
    program: Callable[..., Outcome], settings: tuple[str, ...]
) -> None:
    host = "0.0.0.0" if settings else "127.0.0.1"
    with socket.create_server((host, 0)) as taken:
        address = f"{host}:{taken.getsockname()[1]}"
        done = program("serve", "--memory", "--flight", address, *settings)
    assert done.status == 2
    assert not done.out
    assert done.err == (
        f"error: [config] flight address: cannot listen on {address}: "
        "Address already in use; choose another address\n"
    )


def test_an_address_of_another_machine_is_refused(
    streamfactory: Callable[..., Outcome],
) -> None:
    done = streamfactory(
        "serve", "--memory", "--flight", "192.0.2.1:0", "-o", "allow.remote=true"
    )
    assert done.status == 2
    assert "cannot listen on 192.0.2.1:0: Cannot assign requested" in done.err
