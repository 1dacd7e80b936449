"""A PostgreSQL for tests: made in a folder, started, stopped, ended with its process.

``initdb`` and ``postgres`` are looked for on the path, and where Debian's packages put
them. They refuse to run as root: root starts them as ``postgres`` or ``nobody``.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import psycopg
from streamfactory.conformance import LocalServer

PASSWORD: Final = "harness-secret"
USER: Final = "harness"


class Unavailable(RuntimeError):
    """There is no PostgreSQL on this machine, or no user that may run it."""


class Server:
    """A server with a password, on a free port.

    Args:
        folder: Where its data lies.
        settings: Of the server, beside those of a test.
    """

    def __init__(self, folder: Path, **settings: str) -> None:
        self._programs = programs()
        self._run_as = _user()
        self._data = folder / "data"
        self._settings = settings
        self._process = LocalServer(
            self._data,
            self._command,
            answers=self._answers,
            # It ends open sessions.
            stop_signal=signal.SIGINT,
            run_as=self._run_as,
        )

    @property
    def address(self) -> str:
        """Where it is."""
        return self._process.address

    def properties(self, kind: str = "postgres") -> Mapping[str, str]:
        """Options of a stream type that lead to it."""
        return {
            f"stream.{kind}.address": self.address,
            f"stream.{kind}.database": "postgres",
            f"stream.{kind}.user": USER,
            f"stream.{kind}.password": PASSWORD,
            f"stream.{kind}.tls": "disable",
        }

    def connect(self) -> psycopg.Connection[tuple[object, ...]]:
        """A client of the server, in autocommit mode."""
        host, _, port = self.address.rpartition(":")
        return psycopg.connect(
            host=host,
            port=int(port),
            user=USER,
            password=PASSWORD,
            dbname="postgres",
            sslmode="disable",
            connect_timeout=10,
            options="-c lock_timeout=20s",
            autocommit=True,
        )

    def start(self) -> None:
        """Start it: the first time on a free port, and then on the same."""
        if not self._data.exists():
            self._initialize()
        self._process.start()

    def stop(self) -> None:
        """End it and its sessions; what it has stored stays."""
        self._process.stop()

    def freeze(self) -> None:
        """Suspend it and its sessions: nothing is answered."""
        self._process.freeze()

    def thaw(self) -> None:
        """Let it go on."""
        self._process.thaw()

    def close(self) -> None:
        """End it for good; twice is allowed."""
        self._process.close()

    def _identity(self) -> Mapping[str, object]:
        if self._run_as is None:
            return {}
        user, group = self._run_as
        return {"user": user, "group": group, "extra_groups": ()}

    def _initialize(self) -> None:
        self._data.mkdir(mode=0o700)
        if self._run_as is not None:
            os.chown(self._data, *self._run_as)
            for folder in self._data.parents:
                if not folder.stat().st_mode & 0o001:
                    folder.chmod(folder.stat().st_mode | 0o011)
        secret = self._data.with_name("password")
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        done = subprocess.run(
            [
                *(str(self._programs / "initdb"), "-D", str(self._data), "--no-sync"),
                *("-U", USER, "--auth", "scram-sha-256", "--pwfile", str(secret)),
                *("-E", "UTF8", "--locale", "C", "--no-instructions"),
            ],
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
            **self._identity(),  # type: ignore[call-overload]
        )
        secret.unlink()
        if done.returncode:
            msg = f"initdb failed: {done.stderr.strip()[-500:]}"
            raise RuntimeError(msg)

    def _command(self, port: int) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(port),
            "unix_socket_directories": "",
            "wal_level": "logical",
            # The kit keeps the sinks of all attempts of a case open.
            "max_connections": "1000",
            # A reader of changes has one of each.
            "max_replication_slots": "200",
            "max_wal_senders": "200",
            "shared_buffers": "32MB",
            # A restart finds all that was written; power may fail.
            "fsync": "off",
            "log_min_messages": "warning",
            **self._settings,
        }
        flags = [part for k, v in settings.items() for part in ("-c", f"{k}={v}")]
        return [str(self._programs / "postgres"), "-D", str(self._data), *flags]

    def _answers(self, port: int) -> bool:
        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True


def programs() -> Path:
    """The folder with the programs of a server.

    Raises:
        Unavailable: There is none.
    """
    found = shutil.which("initdb")
    if found is not None and shutil.which("postgres") is not None:
        folder = Path(found).resolve().parent
        if os.geteuid() == 0 and not all(p.stat().st_mode & 1 for p in folder.parents):
            msg = f"root starts the server as another user, who cannot enter {folder}"
            raise Unavailable(msg)
        return folder
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not installed:
        msg = "the programs initdb and postgres are not installed (Debian: postgresql)"
        raise Unavailable(msg)
    return installed[-1].parent


def _user() -> tuple[int, int] | None:
    """Whom root starts the server as; None for anybody else."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return entry.pw_uid, entry.pw_gid
    msg = "PostgreSQL does not run as root, and there is no user postgres or nobody"
    raise Unavailable(msg)
