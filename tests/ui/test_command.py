"""The commands that serve pages: their options, and their ends."""

from __future__ import annotations

import builtins
import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.proving.commands import command_of
from tests.proving.ports import free_port
from tests.ui.conftest import TOKEN, Browser

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.proving.commands import Outcome
    from tests.ui.conftest import World

    Command = Callable[..., Outcome]


@pytest.fixture
def streamfactory(capsys: pytest.CaptureFixture[str]) -> Command:
    return command_of(capsys)


def start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "streamfactory", *words],
        env=dict(os.environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_pages_are_served_until_a_signal(world: World) -> None:
    (world.folder / "token").write_text(TOKEN)
    options = ("token=${file:token}", "hosts=a.example")
    words = [word for option in options for word in ("--option", option)]
    with start("ui", "--address", "127.0.0.1:0", *words) as process:
        assert process.stdout is not None
        location = process.stdout.readline().removeprefix("pages: ").strip()
        browser = Browser(location)
        assert browser.log_in().status == 303
        assert "clicks" in browser.get("/").text
        assert browser.ask("/", Host="a.example").status == 200
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=120)
    assert (process.returncode, out, err) == (0, "", "")


@pytest.mark.long("starts a server of streams")
def test_a_server_of_streams_has_pages(world: World) -> None:
    words = ("--flight", "127.0.0.1:0", "--memory", "--ui", "127.0.0.1:0", "--json")
    with start("serve", *words) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        line = json.loads(process.stderr.readline())
        assert line["level"] == "pages"
        assert Browser(line["message"]).get("/").status == 200
        # Pages are there while topics are opened, which a signal ends at once.
        assert process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)
    assert process.returncode == 0


@pytest.mark.parametrize("command", ["run", "spool"])
def test_an_address_that_cannot_be_used_is_refused_first(
    command: str, world: World, streamfactory: Command
) -> None:
    target = str(world.folder / "configs" / "pipelines" / "delays.toml")
    if command == "spool":
        path = world.catalogue / "push.toml"
        path.write_text(
            "[properties]\nstreamType = 'zeromq'\n'stream.zeromq.topic.name' = 't'\n"
            "'stream.zeromq.pattern' = 'push-pull'\n"
            f"'stream.zeromq.bind' = 'tcp://127.0.0.1:{free_port()}'\n"
            "'spool.path' = 'spool'\n"
        )
        target = "push"
    found = streamfactory(command, target, "--ui", "0.0.0.0:0")
    assert found.status == 2
    assert "open to the network" in found.err
    found = streamfactory(command, target, "--ui-option", "token=x")
    assert found.status == 2
    assert "--ui-option has no effect without --ui." in found.err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--every", "often"], "--every"),
        (["--every", "1s"], "shorter than 3000ms"),
        (["--address", "nowhere"], "is not host:port"),
        (["--address", "0.0.0.0:0"], "open to the network"),
        (["-o", "token=${file:none}"], "cannot be resolved"),
        (["none.toml"], "none.toml"),
    ],
)
def test_mistakes_are_refused(
    words: list[str], text: str, streamfactory: Command
) -> None:
    found = streamfactory("ui", *words)
    assert found.status == 2
    assert text in found.err


def test_what_is_missing_is_named_with_its_installation(
    streamfactory: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **named: Any) -> Any:
        if name.partition(".")[0] == "waitress":
            raise ModuleNotFoundError(name=name.partition(".")[0])
        return real(name, *arguments, **named)

    monkeypatch.delitem(sys.modules, "streamfactory.ui.server", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    found = streamfactory("ui", "--address", "127.0.0.1:0")
    assert "the pages need waitress" in found.err
    assert "pip install 'streamfactory[ui]'" in found.err
