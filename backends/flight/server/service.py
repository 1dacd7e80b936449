"""The Flight service: decodes, checks and executes calls on the log."""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

import pyarrow.flight as fl

from streamfactory.backends.flight.protocol.codec import decode, decode_either, encode
from streamfactory.backends.flight.protocol.failures import to_status
from streamfactory.backends.flight.protocol.messages import (
    CommitRows,
    CommitSession,
    Health,
    MetricValue,
    MetricValues,
    Names,
    Stage,
    Subscribe,
    Ticket,
)
from streamfactory.backends.flight.server.access import (
    MIDDLEWARE,
    Authentication,
    Right,
)
from streamfactory.backends.flight.server.actions import (
    ACTIONS,
    GroupAction,
    ServerAction,
    UploadAction,
    request_of,
)
from streamfactory.backends.flight.server.batches import Incoming
from streamfactory.backends.flight.server.checkpoints import check_name
from streamfactory.backends.flight.server.committing import serve_commits
from streamfactory.backends.flight.server.dictionaries import without_dictionaries
from streamfactory.backends.flight.server.limits import Kind
from streamfactory.backends.flight.server.metrics import CALLS, CALLS_FAILED
from streamfactory.backends.flight.server.plain import (
    flight_info,
    path_of,
    receive_plain,
)
from streamfactory.backends.flight.server.reading import read_range, serve_subscription
from streamfactory.backends.flight.server.redaction import NoSuchTopic
from streamfactory.backends.flight.server.rights import shortening
from streamfactory.backends.flight.server.statistics import Statistics
from streamfactory.backends.flight.server.writing import receive_stage
from streamfactory.spi import (
    ConnectionFailed,
    StreamError,
    UntranslatedError,
)
from streamfactory.spi.addresses import is_unspecified

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType

    from streamfactory.backends.flight.server.access import Access
    from streamfactory.backends.flight.server.checkpoints import CheckpointKeeper
    from streamfactory.backends.flight.server.limits import Limits
    from streamfactory.backends.flight.server.reading import Answer
    from streamfactory.backends.flight.server.redaction import ServedStore
    from streamfactory.backends.flight.server.uploads import Uploads

_logger = logging.getLogger("streamfactory.flight")

_REUSE: Final = "arrow-flight-reuse-connection://?"
"""Flight's location for the connection that a client already has."""

_KINDS: Final = {"get": Kind.READ, "exchange": Kind.READ, "put": Kind.WRITE}
"""Other calls are short."""

Method = TypeVar("Method", bound="Callable[..., Any]")


def _without_place(method: Method) -> Method:
    """Hide the file of a method whose traceback pyarrow sends to the client.

    Seen in pyarrow 26.0.1 for ``get_schema`` alone: other errors are Flight statuses.
    """
    code: CodeType = method.__code__
    hidden = code.replace(co_filename="<server>")
    method.__code__ = hidden
    return method


class LogService(fl.FlightServerBase):  # type: ignore[misc]
    """Serves the topics of a log store. Listens once constructed.

    Args:
        location: Location to listen at.
        store: The topics; closed by the caller.
        checkpoints: Checkpoints of groups of readers.
        limits: Limits of calls.
        batch_bytes: Maximum bytes of a batch of a client.
        uploads: Stages the rows of writers.
        stalled_after: Seconds without activity after which a reader is stalled.
        access: Access control; None to allow everything.
        advertised: Location for clients; None for ``location`` with its port.
        tls: Certificates, as `pyarrow.flight.FlightServerBase` takes them.
    """

    def __init__(
        self,
        location: str,
        store: ServedStore,
        checkpoints: CheckpointKeeper,
        limits: Limits,
        batch_bytes: int,
        uploads: Uploads,
        stalled_after: float,
        access: Access | None = None,
        advertised: str | None = None,
        **tls: Any,
    ) -> None:
        self.store = store
        self.checkpoints = checkpoints
        self.limits = limits
        self._batch_bytes = batch_bytes
        self.stopping = threading.Event()
        """Set at shutdown: waiting calls return, new ones are refused."""
        self._meters, self._uploads = uploads.meters, uploads
        self.statistics = Statistics(
            store, checkpoints, uploads, limits, self.stopping, stalled_after
        )
        self._access = access
        self._location, self._advertised = location, advertised
        middleware = {} if access is None else {MIDDLEWARE: Authentication(access)}
        super().__init__(location, middleware=middleware, **tls)

    @property
    def location(self) -> str:
        """Location for clients."""
        host = self._location.rpartition(":")[0]
        return self._advertised or f"{host}:{self.port}"

    @property
    def endpoint_location(self) -> str:
        """Location of endpoints for clients: a wildcard address is not usable."""
        host = urlsplit(self._location).hostname or ""
        if self._advertised is None and is_unspecified(host):
            return _REUSE
        return self.location

    # --- methods called by Flight ---------------------------------------------------

    def list_actions(self, context: fl.ServerCallContext) -> list[tuple[str, str]]:
        return [(name, action.doc) for name, action in ACTIONS.items()]

    def list_flights(
        self, context: fl.ServerCallContext, criteria: bytes
    ) -> Iterator[fl.FlightInfo]:
        with self._call(context, "list"):
            opened = map(self.store.open, self._readable(context))
            return iter([flight_info(log, self.endpoint_location) for log in opened])

    def get_flight_info(
        self, context: fl.ServerCallContext, descriptor: fl.FlightDescriptor
    ) -> fl.FlightInfo:
        with self._call(context, "info"):
            topic, _ = path_of(descriptor)
            self._check(context, topic, Right.READ)
            return flight_info(self.store.open(topic), self.endpoint_location)

    @_without_place
    def get_schema(
        self, context: fl.ServerCallContext, descriptor: fl.FlightDescriptor
    ) -> fl.SchemaResult:
        try:
            with self._call(context, "schema"):
                topic, _ = path_of(descriptor)
                self._check(context, topic, Right.READ)
                return fl.SchemaResult(
                    without_dictionaries(self.store.open(topic).schema)
                )
        except fl.FlightError as error:
            failure = error.with_traceback(None)
        raise failure

    def do_action(
        self, context: fl.ServerCallContext, action: fl.Action
    ) -> Iterator[bytes]:
        with self._call(context, "action", changes=True):
            wanted, request = request_of(action.type, action.body)
            if isinstance(wanted, ServerAction):
                return iter([encode(self._answer(context, action.type))])
            if isinstance(wanted, GroupAction):
                self._check(context, request.group, wanted.right, groups=True)
                return iter([encode(wanted.function(self.checkpoints, request))])
            if isinstance(wanted, UploadAction):
                self._check_change(context, wanted.right, request)
                client = self._client(context)
                return iter([encode(wanted.function(self._uploads, request, client))])
            for topic in wanted.topics_of(request):
                self._check(context, topic, wanted.right)
            return iter([encode(wanted.function(self.store, request))])

    def do_get(
        self, context: fl.ServerCallContext, ticket: fl.Ticket
    ) -> fl.FlightDataStream:
        with self._call(context, "get"):
            wanted = decode(ticket.ticket, Ticket)
            self._check(context, wanted.topic, Right.READ)
            schema, batches = read_range(
                self.store, wanted, context, self.stopping, self._meters
            )
            return fl.GeneratorStream(schema, self._streamed(context, batches))

    def do_exchange(
        self,
        context: fl.ServerCallContext,
        descriptor: fl.FlightDescriptor,
        reader: fl.MetadataRecordBatchReader,
        writer: fl.MetadataRecordBatchWriter,
    ) -> None:
        with self._call(context, "exchange"):
            wanted = decode_either(
                descriptor.command or b"", Subscribe, CommitSession, "writer"
            )
            if isinstance(wanted, CommitSession):
                self._serve_commits(context, wanted, reader, writer)
                return
            self._check(context, wanted.topic, Right.READ)
            serve_subscription(
                self.store, wanted, reader, writer, self.stopping, self._meters
            )

    def _serve_commits(
        self,
        context: fl.ServerCallContext,
        wanted: CommitSession,
        reader: fl.MetadataRecordBatchReader,
        writer: fl.MetadataRecordBatchWriter,
    ) -> None:
        @contextmanager
        def changing(epoch: CommitRows) -> Iterator[None]:
            # Check each commit: rights may be revoked during a session.
            self._check_change(context, Right.WRITE, wanted, epoch)
            with self.limits.change():
                self._refuse_stopping("commit")
                yield

        self._check_change(context, Right.WRITE, wanted)
        incoming = self._incoming(context, reader)
        serve_commits(self._uploads, wanted, incoming, writer, changing)

    def do_put(
        self,
        context: fl.ServerCallContext,
        descriptor: fl.FlightDescriptor,
        reader: fl.MetadataRecordBatchReader,
        writer: fl.FlightMetadataWriter,
    ) -> None:
        with self._call(context, "put", changes=True):
            incoming = self._incoming(context, reader)
            if descriptor.descriptor_type == fl.DescriptorType.PATH:
                topic, partition = path_of(descriptor)
                self._check(context, topic, Right.WRITE)
                receive_plain(
                    self.store, self._uploads, topic, partition, incoming, writer
                )
                return
            wanted = decode(descriptor.command or b"", Stage)
            self._check(context, wanted.topic, Right.WRITE)
            receive_stage(self.store, self._uploads, wanted, incoming, writer)

    def _streamed(
        self, context: fl.ServerCallContext, batches: Iterator[Answer]
    ) -> Iterator[Answer]:
        with self._call(context, "get", begins=False):
            yield from batches

    # --- common to all calls --------------------------------------------------------

    @contextmanager
    def _call(
        self,
        context: fl.ServerCallContext,
        what: str,
        *,
        changes: bool = False,
        begins: bool = True,
    ) -> Iterator[None]:
        """Refuse calls at shutdown and beyond the limits; translate errors.

        Args:
            context: Of the call.
            what: Its method.
            changes: Whether it writes: a shutdown waits for it.
            begins: False for the second part of a call: it is counted once.
        """
        if begins:
            self._meters.recorder.add(CALLS, what)
        try:
            self._refuse_stopping(what)
            client, kind = self._client(context), _KINDS.get(what, Kind.SHORT)
            with self.limits.call(client, kind, changes=changes):
                yield
        except fl.FlightError:
            raise
        except StreamError as error:
            self._meters.recorder.add(CALLS_FAILED, what, error.code)
            if self.store.redactor.conceals(str(error)):
                # Log the unmodified error: operators need the paths that clients must
                # not see.
                _logger.error("%s: %s", what, error)  # noqa: TRY400 - no defect
            if isinstance(error, NoSuchTopic):
                known = ", ".join(self._readable(context)) or "none"
                error.what += f"; existing topics: {known}"
            raise to_status(self.store.redactor.public_error(error)) from None
        except Exception as error:
            if context.is_cancelled():
                raise fl.FlightCancelledError(
                    what
                ) from None  # the client has cancelled
            self._meters.recorder.add(CALLS_FAILED, what, UntranslatedError.code)
            _logger.exception("%s failed", what)
            msg = f"{what} failed inside the server: {type(error).__name__}"
            remedy = "the log of the server has the details"
            raise to_status(UntranslatedError(msg, remedy=remedy)) from None

    def _refuse_stopping(self, what: str) -> None:
        if self.stopping.is_set():
            msg = f"{what}: the server is shutting down"
            raise ConnectionFailed(msg, remedy="retry when it runs again")

    def _check_change(
        self, context: fl.ServerCallContext, right: Right, request: Any, *more: Any
    ) -> None:
        """Check the right of a call, and those of what it does beyond appending."""
        self._check(context, request.topic, right)
        for member in shortening(request, *more):
            self._check(context, request.topic, Right.ADMIN, member=member)

    def _check(
        self,
        context: fl.ServerCallContext,
        name: str,
        right: Right,
        *,
        groups: bool = False,
        member: str | None = None,
    ) -> None:
        """Refuse unusable names of topics or groups, and users without the right."""
        check_name(name)
        if self._access is not None:
            user = context.get_middleware(MIDDLEWARE).user
            self._access.check(user, name, right, groups=groups, member=member)

    def _answer(self, context: fl.ServerCallContext, action: str) -> Any:
        """The answer to an action on the server itself."""
        if action == "topics":
            return Names(tuple(self._readable(context)))
        if action == "checkpoints-groups":
            may_read = self._may_read(context, groups=True)
            return Names(tuple(filter(may_read, self.checkpoints.groups())))
        if action == "health":
            problems = self.statistics.problems()
            return Health(not problems, tuple(problems))
        samples = self.statistics.samples(
            self._may_read(context), self._may_read(context, groups=True)
        )
        return MetricValues(
            tuple(
                MetricValue(
                    sample.metric.name,
                    sample.number,
                    dict(zip(sample.metric.labels, sample.labels, strict=True)) or None,
                )
                for sample in samples
            )
        )

    def _incoming(
        self, context: fl.ServerCallContext, reader: fl.MetadataRecordBatchReader
    ) -> Incoming:
        client = self._client(context)
        return Incoming(client, context, reader, self._batch_bytes)

    def _client(self, context: fl.ServerCallContext) -> str:
        """Key by which calls and uploads are counted: a user, or an address."""
        if self._access is not None:
            return str(context.get_middleware(MIDDLEWARE).user)
        return str(context.peer().rpartition(":")[0])

    def _readable(self, context: fl.ServerCallContext) -> list[str]:
        """Names of the topics that the user may read."""
        return list(filter(self._may_read(context), self.store.names()))

    def _may_read(
        self, context: fl.ServerCallContext, *, groups: bool = False
    ) -> Callable[[str], bool]:
        """Whether the user of a call may read a topic, or a group."""
        access = self._access
        if access is None:
            return lambda _: True
        user = context.get_middleware(MIDDLEWARE).user
        return lambda name: access.allows(user, name, Right.READ, groups=groups)
