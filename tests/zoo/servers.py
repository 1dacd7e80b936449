"""Backends that are wrong about their server: its certificate, or its going away."""

from __future__ import annotations

import os
import ssl
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.certificates import certificates
from tests.zoo.registry import caught_by, register

from streamfactory.conformance.specimens import forgetful
from streamfactory.conformance.specimens.durable import (
    DurableCommitter,
    DurableProducerFactory,
)
from streamfactory.conformance.specimens.frames import Topic, pack
from streamfactory.conformance.specimens.queue_server import QueueServer
from streamfactory.spi import ErrorTable

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping, Sequence

    from streamfactory.spi import (
        CommitMessage,
        LastCommit,
        Position,
        StreamCommitter,
    )

# --- TLS -------------------------------------------------------------------------


class TlsServer(QueueServer):
    """The queue over TLS."""

    def get_request(self) -> tuple[Any, Any]:
        plain, address = super().get_request()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        folder = certificates()
        context.load_cert_chain(folder / "server.pem", folder / "server.key")
        # The handshake is made by the thread of the connection, with its first read.
        secured = context.wrap_socket(
            plain, server_side=True, do_handshake_on_connect=False
        )
        return secured, address

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that refuses the certificate is no error of the server."""


class TlsHarness(forgetful.ForgetfulHarness):
    """The server, over TLS."""

    SERVER = TlsServer

    def properties(self) -> Mapping[str, str]:
        authority = str(certificates() / "ca.pem")
        return {**super().properties(), "stream.forgetful.ca": authority}

    def refused_certificate(self) -> Mapping[str, str]:
        """Another authority than that of the server's certificate."""
        return {"stream.forgetful.ca": str(certificates() / "other-ca.pem")}


class _Trusting(forgetful.Connection):
    def secure(self, plain: socket.socket, authority: str) -> socket.socket:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context.wrap_socket(plain)


class _TrustingMetadata(forgetful.ForgetfulMetadata):
    CONNECTION = _Trusting


class TrustingConsumers(forgetful.ForgetfulConsumerFactory):
    """Looks at the server over TLS, and does not check its certificate."""

    def create_metadata_provider(self, client_id: str) -> forgetful.ForgetfulMetadata:
        return _TrustingMetadata(self.config)


register(
    "TrustsEveryCertificate",
    "The server's certificate is not checked.",
    "a_refused_certificate_is_an_error_in_time",
    replace(forgetful.streamfactory_backend(), consumer_factory=TrustingConsumers),
    TlsHarness,
)
register(
    "LeavesRefusedCertificatesUntranslated",
    "The exception of a refused certificate is not translated.",
    "a_refused_certificate_is_an_error_in_time",
    replace(forgetful.streamfactory_backend(), translate=ErrorTable({})),
    TlsHarness,
)


# --- commits ----------------------------------------------------------------------


class _Presuming(DurableCommitter):
    def commit(
        self,
        epoch: int,
        messages: Sequence[CommitMessage],
        source_position: Position | None = None,
    ) -> LastCommit | None:
        try:
            return super().commit(epoch, messages, source_position)
        except ConnectionError:
            return None


@caught_by("committing_continues_after_a_server_outage")
class IgnoresTheResultOfACommit(DurableProducerFactory):
    """A commit whose connection breaks counts as successful."""

    def create_committer(self, writer_id: str | None) -> StreamCommitter:
        return _Presuming(self.config, writer_id)


class _SendsAgain(Topic):
    def _write(self, file: Any, head: Mapping[str, Any], body: bytes) -> None:
        try:
            super()._write(file, head, body)
        except ConnectionResetError:
            file.seek(0, os.SEEK_END)
            file.write(pack(head, body))


class _Repeating(DurableCommitter):
    def topic(self) -> Topic:
        return _SendsAgain(self._config["path"])


@caught_by("a_commit_that_loses_its_server_writes_once")
class RepeatsUnansweredRequests(DurableProducerFactory):
    """The client repeats a request whose reply was lost."""

    def create_committer(self, writer_id: str | None) -> StreamCommitter:
        return _Repeating(self.config, writer_id)
