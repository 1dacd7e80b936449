"""Distributions of others: their wheels beside ours, and the servers that they need."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.kafka.jars import Unavailable
from tests.proving.debian import environment_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).parents[2]
TREES = (
    *sorted((ROOT / "examples" / "backends").iterdir()),
    *sorted((ROOT / "distributions").iterdir()),
)
"""The packages beside streamfactory."""


@dataclass(frozen=True)
class Server:
    """What the harness of a distribution starts."""

    program: str
    packages: tuple[str, ...]
    """Of Debian, with the program and its libraries."""
    module: str
    """Of the client library."""


SERVERS: Final = {
    "nats": Server("nats-server", ("nats-server",), "nats"),
    "postgres": Server("initdb", ("postgresql-15", "libllvm14"), "psycopg"),
    "redis": Server(
        "redis-server",
        ("redis-server", "redis-tools", "libjemalloc2", "liblzf1"),
        "redis",
    ),
}
"""By type."""


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

    def with_server(self, kind: str) -> Installed:
        """The same, with the client library and the server of a type.

        Raises:
            Unavailable: There is no library or no server.
        """
        server = SERVERS[kind]
        if find_spec(server.module) is None:
            msg = f"the module {server.module} is not installed"
            raise Unavailable(msg)
        return Installed(self.site, environment_of(server.program, server.packages))


def build(folder: Path) -> Installed:
    """All wheels, unpacked in a folder as an installer would."""
    built, site = folder / "built", folder / "site"
    for tree in (ROOT, *TREES):
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
