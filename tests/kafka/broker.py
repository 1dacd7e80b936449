"""Apache Kafka's own broker, for tests: one node or several, on free ports.

`shared_broker` starts one for a whole run of tests; `Cluster` is one that a test may
kill, start again and stop. A watcher ends them when the run ends, however it ends.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from base64 import urlsafe_b64encode
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from tests.kafka.jars import Unavailable, cached, jars, java, locked
from tests.proving.java import QUICK, missing_java
from tests.proving.ports import free_ports
from tests.proving.shared import LEFT_TO_THE_WATCHER, started_once, watched
from tests.proving.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.proving.network import Host
    from tests.proving.shared import Run

START = 20.0
"""Seconds in which a broker answers."""
STOP = 30.0
USER, PASSWORD = "alice", "wonderland-7"
"""Who may log in, by SCRAM and PLAIN."""

LOGGING = """
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ABSOLUTE} %p %c{1} %m%n%ex
"""


@dataclass(frozen=True)
class Addresses:
    """Where a broker can be reached, by security protocol."""

    bootstrap: str
    """Without security."""
    ssl: str | None = None
    sasl: str | None = None
    """SASL over plain text: PLAIN, SCRAM-SHA-256, and OAUTHBEARER unsecured."""
    sasl_ssl: str | None = None
    mtls: str | None = None
    """SSL that requires a certificate of the client."""
    certificates: str | None = None
    """Folder of the certificates: `tests.certificates`."""


class Node:
    """One node of a cluster: its files, its ports and its process."""

    def __init__(
        self, folder: Path, number: int, flags: Sequence[str], host: Host | None = None
    ) -> None:
        self.id = number
        self.flags = flags
        self._host = host
        self.folder = folder / f"node-{number}"
        self.data = self.folder / "data"
        self.log = self.folder / "server.log"
        first = free_ports(6)
        self.ports = [*range(first, first + 6)]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def addresses(self) -> list[str]:
        address = "127.0.0.1" if self._host is None else self._host.address
        return [f"{address}:{port}" for port in self.ports]

    @property
    def properties(self) -> Path:
        return self.folder / "server.properties"

    def start(self, run: int) -> None:
        """Start the process; it answers a little later."""
        command = [java(), "-Xmx512m", *QUICK, *self.flags]
        command += [f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}"]
        command += ["-cp", classpath(), "kafka.Kafka", str(self.properties)]
        if self._host is not None:
            command = self._host.within(command)
        self._process = watched(command, run, self.data, self.log)

    @property
    def runs(self) -> bool:
        """Whether it was started, and not ended."""
        return self._process is not None

    @property
    def lives(self) -> bool:
        """Whether it has not ended by itself."""
        return self._process is None or self._process.poll() is None

    def sent(self) -> int:
        """Bytes that the broker has written: to its clients, and to its log files.

        Linux counts what it sends out of its files too.
        """
        assert self._process is not None
        shell = self._process.pid
        children = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()
        (broker,) = (pid for pid in children if _is_java(pid))
        counters = Path(f"/proc/{broker}/io").read_text().split()
        return int(counters[counters.index("wchar:") + 1])

    def end(self, how: signal.Signals) -> bool:
        """End the process: SIGTERM lets it finish, SIGKILL does not.

        Returns:
            Whether it has finished by itself.
        """
        process, self._process = self._process, None
        if process is None:
            return False
        group = process.pid
        if how is signal.SIGTERM:
            process.terminate()
            try:
                process.wait(STOP)
            except subprocess.TimeoutExpired:
                how = signal.SIGKILL
        if how is signal.SIGKILL:
            with suppress(ProcessLookupError):  # it has ended by itself
                os.killpg(group, signal.SIGKILL)
            process.wait(STOP)
        return how is signal.SIGTERM

    def pause(self) -> None:
        """Stop the process where it stands: it holds its connections, and is silent."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGCONT)

    def tail(self) -> str:
        """The end of its log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-30:])


def _is_java(pid: str) -> bool:
    # A copy of the shell, which runs its loop, has all arguments of the broker, too.
    command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
    return command.endswith(b"java")


class Cluster:
    """Nodes that belong together; a context manager.

    Args:
        folder: Gets the files of each node.
        nodes: How many; three where leaders have to move.
        properties: Settings of the brokers, over those of this module.
        run: Process whose end ends the brokers; this one by default.
        flags: Of Java; those of `archived` by default.
        hosts: Of the nodes; by default this machine, by its loopback.
    """

    def __init__(
        self,
        folder: Path,
        nodes: int = 1,
        properties: Mapping[str, str] | None = None,
        *,
        run: int | None = None,
        flags: Sequence[str] | None = None,
        hosts: Sequence[Host | None] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        flags = archived() if flags is None else flags
        self.nodes = [
            Node(folder, number + 1, flags, host)
            for number, host in enumerate(hosts or [None] * nodes)
        ]
        self._folder = folder
        self._run = run or os.getpid()
        identity = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        for node in self.nodes:
            self._format(node, identity.replace("-", "a"), properties or {})

    @property
    def bootstrap(self) -> str:
        return ",".join(node.addresses[0] for node in self.nodes)

    @property
    def addresses(self) -> Addresses:
        first = self.nodes[0].addresses
        certificates = str(self._folder / "certificates")
        plain, _, ssl, sasl, sasl_ssl, mtls = first
        return Addresses(plain, ssl, sasl, sasl_ssl, mtls, certificates)

    def start(self) -> None:
        """Start all nodes that do not run, and wait until they answer."""
        for node in self.nodes:
            if not node.lives:  # the test that saw it end has failed, and no other
                node.end(signal.SIGKILL)
            if not node.runs:
                node.start(self._run)
        self.wait()

    def wait(self, nodes: int | None = None) -> None:
        """Wait until so many nodes answer."""
        wanted = nodes or len(self.nodes)
        deadline = time.monotonic() + START * 2
        client = quiet_admin(self.bootstrap)
        while time.monotonic() < deadline and all(node.lives for node in self.nodes):
            try:
                if len(client.list_topics(timeout=1).brokers) >= wanted:
                    return
            except KafkaException:
                time.sleep(0.05)
        tails = "\n".join(f"node {n.id}:\n{n.tail()}" for n in self.nodes)
        msg = f"the broker ended, or did not answer in {START * 2:.0f} s:\n{tails}"
        raise Unavailable(msg)

    def stop(self) -> None:
        """End all nodes, and take their data away; logs stay."""
        for node in self.nodes:
            node.end(signal.SIGKILL)
            shutil.rmtree(node.data, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _format(self, node: Node, identity: str, more: Mapping[str, str]) -> None:
        from tests.certificates import issue_certificates

        node.folder.mkdir()
        certificates = self._folder / "certificates"
        if not certificates.exists():  # of the first node
            certificates.mkdir(parents=True)
            issue_certificates(certificates)
        settings = {**self._settings(node), **more}
        lines = [f"{key}={value}\n" for key, value in settings.items()]
        node.properties.write_text("".join(lines))
        (node.folder / "log4j2.properties").write_text(LOGGING)
        scram = f"SCRAM-SHA-256=[name={USER},password={PASSWORD}]"
        command = [java(), *QUICK, *node.flags, "-cp", classpath()]
        command += ["kafka.tools.StorageTool", "format", "-t", identity]
        command += ["-c", str(node.properties), "--add-scram", scram]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False
        )
        if done.returncode:
            msg = f"the broker's storage cannot be formatted:\n{done.stderr[-2000:]}"
            raise Unavailable(msg)

    def _settings(self, node: Node) -> dict[str, str]:
        kinds = {
            "PLAINTEXT": "PLAINTEXT",
            "CONTROLLER": "PLAINTEXT",
            "SSL": "SSL",
            "SASL_PLAINTEXT": "SASL_PLAINTEXT",
            "SASL_SSL": "SASL_SSL",
            "MTLS": "SSL",
        }
        listeners = [
            f"{name}://{address}"
            for name, address in zip(kinds, node.addresses, strict=True)
        ]
        voters = ",".join(f"{n.id}@{n.addresses[1]}" for n in self.nodes)
        copies = str(len(self.nodes))
        protocols = ",".join(f"{name}:{kind}" for name, kind in kinds.items())
        jaas = (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'username="{USER}" password="{PASSWORD}" user_{USER}="{PASSWORD}";'
        )
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        bearer = (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule "
            'required unsecuredLoginStringClaim_sub="broker";'
        )
        logins = {
            f"listener.name.{name}.{mechanism}.sasl.jaas.config": login
            for name in ("sasl_plaintext", "sasl_ssl")
            for mechanism, login in (
                ("plain", jaas),
                ("scram-sha-256", scram),
                ("oauthbearer", bearer),
            )
        }
        certificates = self._folder / "certificates"
        return {
            "process.roles": "broker,controller",
            "node.id": str(node.id),
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(listeners),
            "advertised.listeners": ",".join(
                one for one in listeners if not one.startswith("CONTROLLER")
            ),
            "listener.security.protocol.map": protocols,
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(node.data),
            "num.partitions": "1",
            # Tests write messages of any year.
            "log.retention.ms": "-1",
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": copies,
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.num.partitions": "4",
            "transaction.state.log.min.isr": "1",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "group.consumer.min.heartbeat.interval.ms": "200",
            "group.consumer.heartbeat.interval.ms": "300",
            "log.cleaner.backoff.ms": "200",
            "log.retention.check.interval.ms": "300",
            "log.initial.task.delay.ms": "300",
            "message.max.bytes": "12582912",
            "replica.fetch.max.bytes": "12582912",
            "broker.heartbeat.interval.ms": "300",
            "broker.session.timeout.ms": "3000",
            # One that nobody forbade anything may do everything.
            "authorizer.class.name": (
                "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
            ),
            "allow.everyone.if.no.acl.found": "true",
            "super.users": "User:ANONYMOUS",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
            **logins,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(certificates / "server.store.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(certificates / "ca.pem"),
            "listener.name.ssl.ssl.client.auth": "requested",
            "listener.name.mtls.ssl.client.auth": "required",
        }


@cache
def classpath() -> str:
    """The broker's jars."""
    return os.pathsep.join(str(path) for path in jars("broker"))


@cache
def archived() -> tuple[str, ...]:
    """Flags with which Java maps the broker's classes, instead of loading each.

    They are archived once: a broker is started for that, and ended.
    """
    jvm = Path(java()).resolve()
    kind = f"{jvm} {jvm.stat().st_mtime} {classpath()}".encode()
    archive = cached(f"classes-{hashlib.sha256(kind).hexdigest()[:16]}.jsa")
    made = archive.with_suffix(".new")
    with locked(archive.with_suffix(".lock")):
        if not archive.exists():
            with tempfile.TemporaryDirectory() as folder:
                cluster = Cluster(Path(folder, "kafka"), flags=())
                (node,) = cluster.nodes
                node.flags = (f"-XX:ArchiveClassesAtExit={made}",)
                with cluster:
                    if node.end(signal.SIGTERM) and made.exists():
                        made.replace(archive)
    return (f"-XX:SharedArchiveFile={archive}",) if archive.exists() else ()


def quiet_admin(bootstrap: str) -> AdminClient:
    """An admin client that keeps its opinions of the network to itself."""
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "error_cb": lambda _: None,
        "log_level": 0,
        "reconnect.backoff.ms": "20",
        "reconnect.backoff.max.ms": "200",
    }
    return AdminClient(settings)


def on_a_broker(name: str, place: Path, hunt: Callable[[str], Verdict]) -> Verdict:
    """The verdict of a proof with Spark and a broker, which is started for it.

    Args:
        name: Of the proof.
        place: Gets the files of the broker.
        hunt: The proof; called with the address of the broker.
    """
    if missing_java() is not None:
        return Verdict(notes=[f"{name}: NOT PROVED, it needs Java 17"])
    try:
        with Cluster(place / "broker") as cluster:
            return hunt(cluster.bootstrap)
    except Unavailable as reason:
        return Verdict(notes=[f"{name}: NOT PROVED, {reason}"])


def shared_broker(run: Run) -> Addresses:
    """The broker of a run of tests: started by the first process that asks."""
    given = os.environ.get("KAFKA_BOOTSTRAP")
    if given:
        return Addresses(given)

    def start() -> dict[str, Any]:
        cluster = Cluster(run.folder / "kafka", run=run.process)
        try:
            cluster.start()
        except BaseException:
            cluster.stop()
            raise
        LEFT_TO_THE_WATCHER.append(cluster)
        return vars(cluster.addresses)

    return Addresses(**started_once(run, "broker", start))


if __name__ == "__main__":  # before the first test needs them: see Makefile
    with suppress(Unavailable):
        archived()
