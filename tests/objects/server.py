"""A real S3 server for tests: SeaweedFS, whose program comes in a wheel.

It listens on this machine alone, on ports that no other test is given.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import obstore
from tests.proving.ports import free_ports
from tests.proving.shared import LEFT_TO_THE_WATCHER, watched

if TYPE_CHECKING:
    import subprocess

HOST = "127.0.0.1"
BUCKET = "streams"
PATIENCE = 240.0
"""Seconds for a start."""


@dataclass(frozen=True)
class Identity:
    """Who asks."""

    key: str
    secret: str


OWNER = Identity("owner-key", "owner-very-secret")
READER = Identity("reader-key", "reader-very-secret")
STRANGER = Identity("stranger-key", "stranger-very-secret")


def program() -> str | None:
    """The server's program; None where it is not installed."""
    beside = Path(sys.executable).parent / "weed"
    return str(beside) if beside.exists() else shutil.which("weed")


class ObjectServer:
    """A server that runs.

    Args:
        port: Where it is.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.endpoint = f"http://{HOST}:{port}"

    @classmethod
    def start(cls, folder: Path, run: int) -> ObjectServer:
        """Start one, and wait until it answers.

        Args:
            folder: Where it keeps what it is given; empty.
            run: The process whose end ends it.
        """
        first = free_ports(8)
        ports = [*range(first, first + 8)]
        identities = folder / "identities.json"
        identities.write_text(json.dumps(_identities()))
        data = folder / "data"
        data.mkdir()
        found = program()
        assert found is not None
        command = [
            found,
            "-logtostderr=true",
            "server",
            f"-dir={data}",
            f"-ip={HOST}",
            f"-ip.bind={HOST}",
            "-master.telemetry=false",
            "-master.volumeSizeLimitMB=256",
            "-volume.max=24",
            "-s3",
            f"-s3.port={ports[0]}",
            f"-s3.port.grpc={ports[1]}",
            f"-s3.config={identities}",
            f"-s3.localSocket={folder / 's3.sock'}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-s3.iam=false",
            "-filer",
            f"-filer.port={ports[2]}",
            f"-filer.port.grpc={ports[3]}",
            f"-filer.localSocket={folder / 'filer.sock'}",
            f"-volume.port={ports[4]}",
            f"-volume.port.grpc={ports[5]}",
            f"-master.port={ports[6]}",
            f"-master.port.grpc={ports[7]}",
        ]
        # Some of its sockets have a fixed place.
        left = " ".join(f"/tmp/seaweedfs-*-{port}.sock" for port in ports)
        log = folder / "server.log"
        server, process = cls(first), watched(command, run, data, log, left)
        try:
            server._await(process, log)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        LEFT_TO_THE_WATCHER.append(process)
        return server

    def store(self, who: Identity = OWNER, endpoint: str | None = None) -> Any:
        """The server's own client, beside the code under test."""
        return obstore.store.S3Store(
            BUCKET,
            endpoint=endpoint or self.endpoint,
            region="us-east-1",
            access_key_id=who.key,
            secret_access_key=who.secret,
            client_options={"allow_http": True, "timeout": "20s"},
            retry_config={"max_retries": 0},
        )

    def _await(self, process: subprocess.Popen[bytes], log: Path) -> None:
        """Make the bucket, and wait until a blob can be written."""
        deadline = time.monotonic() + PATIENCE
        while (trouble := self._trouble()) is not None:
            if process.poll() is not None or time.monotonic() > deadline:
                text = log.read_text(errors="replace")[-2000:]
                msg = f"the object server does not answer: {trouble}\n{text}"
                raise RuntimeError(msg)
            time.sleep(0.1)

    def _trouble(self) -> str | None:
        """Why nothing can be written yet."""
        try:
            url = obstore.sign(self.store(), "PUT", "", timedelta(seconds=60))
            request = urllib.request.Request(url, method="PUT")
            urllib.request.urlopen(request, timeout=5).read()
            obstore.put(self.store(), "ready", b"yes")
        except urllib.error.HTTPError as error:
            with error:
                return str(error)
        except (OSError, obstore.exceptions.BaseError) as error:
            return str(error)
        return None


def _identities() -> dict[str, Any]:
    def identity(name: str, who: Identity, actions: list[str]) -> dict[str, Any]:
        pair = {"accessKey": who.key, "secretKey": who.secret}
        return {"name": name, "credentials": [pair], "actions": actions}

    rights = ["Admin", "Read", "Write", "List", "Tagging"]
    return {
        "identities": [
            identity("owner", OWNER, rights),
            identity("reader", READER, ["Read", "List"]),
        ]
    }
