"""A real S3 server for tests: SeaweedFS, whose program comes in a wheel.

It listens on this machine alone, on ports that no other test is given.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import obstore
from tests.proving.ports import free_ports

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
    """One server process.

    Args:
        folder: Where it keeps what it is given; empty.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        first = free_ports(8)
        ports = [*range(first, first + 8)]
        self.port, self._ports = ports[0], ports
        self.endpoint = f"http://{HOST}:{self.port}"
        self._log = folder / "server.log"
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
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder
            )
        try:
            self._await()
        except BaseException:
            self.stop()
            raise

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

    def stop(self) -> None:
        """End it; what it kept is of no use to anybody."""
        self._process.kill()
        self._process.wait(PATIENCE)
        # Some of its sockets have a fixed place.
        for port in self._ports:
            for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                left.unlink(missing_ok=True)

    def _await(self) -> None:
        """Make the bucket, and wait until a blob can be written."""
        deadline = time.monotonic() + PATIENCE
        while (trouble := self._trouble()) is not None:
            if self._process.poll() is not None or time.monotonic() > deadline:
                log = self._log.read_text(errors="replace")[-2000:]
                msg = f"the object server does not answer: {trouble}\n{log}"
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
