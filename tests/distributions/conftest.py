"""Distributions of others: their wheels beside ours, and the servers that they need."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.kafka.jars import Unavailable
from tests.proving.debian import environment_of
from tests.proving.skipping import skip_or_fail

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "backends"


@dataclass(frozen=True)
class Installed:
    """Distributions as a user has them: in wheels, with what their servers need."""

    site: Path
    """A folder with the wheels of streamfactory and of the distributions."""
    environment: Mapping[str, str]

    def run(
        self,
        module: str,
        *arguments: str,
        cwd: Path,
        path: Sequence[str] = (),
        **variables: str,
    ) -> str:
        """Run a module as a program; what it printed on standard output.

        Args:
            module: Its name.
            *arguments: Of its command line.
            cwd: Where it runs.
            path: Folders that it imports from, behind the wheels.
            **variables: Of its environment.
        """
        given = [folder for folder in [os.environ.get("PYTHONPATH", "")] if folder]
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            cwd=cwd,
            env={
                **os.environ,
                **self.environment,
                "PYTHONPATH": os.pathsep.join([str(self.site), *path, *given]),
                "PYTHONDONTWRITEBYTECODE": "1",
                **variables,
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def with_server(
        self, client: str, program: str, packages: Sequence[str]
    ) -> Installed:
        """The same, with a client library and a server; skips without either."""
        if find_spec(client) is None:
            skip_or_fail(f"the module {client} is not installed")
        try:
            found = environment_of(program, tuple(packages))
        except Unavailable as reason:
            skip_or_fail(str(reason))
        return Installed(self.site, found)


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """All wheels, unpacked as an installer would."""
    built, site = tmp_path_factory.mktemp("built"), tmp_path_factory.mktemp("site")
    for tree in (ROOT, *sorted(EXAMPLES.iterdir())):
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
        subprocess.run(
            [*command, "-d", str(built)],
            cwd=tree,
            check=True,
            capture_output=True,
            timeout=300,
        )
    for wheel in built.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
    return Installed(site, {})


@pytest.fixture(scope="session")
def nats_server(wheels: Installed) -> Installed:
    """The wheels, and the program that their harness starts."""
    return wheels.with_server("nats", "nats-server", ["nats-server"])


@pytest.fixture(scope="session")
def redis_server(wheels: Installed) -> Installed:
    """The same of Redis."""
    packages = ["redis-server", "redis-tools", "libjemalloc2", "liblzf1"]
    return wheels.with_server("redis", "redis-server", packages)
