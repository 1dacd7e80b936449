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
    """What a distribution needs: its client, and what its harness starts."""

    client: str
    """The module of the client library."""
    program: str | None = None
    """None where the harness needs none."""
    packages: tuple[str, ...] = ()
    """Of Debian, with the program and its libraries."""
    writes_once: bool = True
    """Whether it writes exactly once: others are proved by their own kills."""


SERVERS: Final = {
    "http": Server("httpx", writes_once=False),
    "mqtt": Server(
        "paho.mqtt",
        "mosquitto",
        ("mosquitto", "libcjson1", "libmosquitto1", "libdlt2", "libwrap0"),
        writes_once=False,
    ),
    "nats": Server("nats", "nats-server", ("nats-server",)),
    "postgres": Server(
        "psycopg",
        "initdb",
        (
            "postgresql-15",
            "libpq5",
            "libldap-2.5-0",
            "libicu72",
            "libxml2",
            "libllvm14",
        ),
    ),
    "redis": Server(
        "redis",
        "redis-server",
        ("redis-server", "redis-tools", "libjemalloc2", "liblzf1"),
    ),
    "vault": Server("httpx", writes_once=False),
}
"""By type, or scheme of references."""


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
            timeout=850,  # a kit on a busy machine; pytest gives up at 900
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def with_server(self, kind: str) -> Installed:
        """The same, with the client library and the server of a type.

        Raises:
            Unavailable: There is no library or no server.
        """
        server = SERVERS[kind]
        # The package first: the parent of a missing module cannot be imported.
        package = server.client.partition(".")[0]
        if find_spec(package) is None:
            msg = f"the module {server.client} is not installed"
            raise Unavailable(msg)
        if server.program is None:
            return self
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
