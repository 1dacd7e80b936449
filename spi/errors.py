"""All errors of the framework and of backends, in one tree.

::

    StreamError
    ├── ConfigError                 config      ValueError   all problems at once
    │   ├── UnknownStream           config      LookupError
    │   ├── GuaranteeRefused        config
    │   └── SchemaUnknown           config
    ├── PluginError                 plugin
    │   ├── UnknownPlugin           plugin      LookupError
    │   ├── NotInstalled            plugin      ImportError
    │   ├── BrokenPlugin            plugin
    │   ├── DuplicatePlugin         plugin
    │   ├── PluginTooNew            plugin
    │   ├── PluginBlocked           plugin
    │   ├── ContractBroken          plugin      a backend broke a rule
    │   └── UntranslatedError       plugin      a foreign exception crossed the SPI
    ├── TransientError              transient   a retry can help
    │   ├── ConnectionFailed        transient   ConnectionError
    │   ├── StreamTimeout           transient   TimeoutError
    │   └── PartialMetadata         transient
    ├── PermanentError              permanent
    │   ├── TopicNotFound           permanent   LookupError
    │   ├── NotAuthorized           permanent   PermissionError
    │   ├── SchemaMismatch          permanent   TypeError
    │   ├── MessageTooLarge         permanent   ValueError
    │   ├── PositionRefused         permanent   ValueError
    │   ├── WriterFenced            permanent
    │   ├── FormatRefused           permanent   ValueError
    │   ├── SpoolFull               permanent
    │   ├── StorageFailed           permanent   OSError
    │   ├── ProducerFailed          permanent
    │   ├── ReaderFailed            permanent
    │   └── CheckpointFailed        permanent   OSError
    ├── DataLossError               data_loss
    │   ├── OffsetOutOfRange        data_loss   LookupError
    │   ├── IncarnationChanged      data_loss
    │   ├── PartitionVanished       data_loss   LookupError
    │   ├── CorruptData             data_loss   ValueError
    │   └── EpochMarkerLost         data_loss
    ├── DecodeError                 decode      ValueError
    │   └── ErrorBudgetExceeded     decode
    └── MisuseError                 misuse
        ├── ClosedError             misuse      ValueError
        ├── EpochInThePast          misuse      ValueError
        ├── EpochMismatch           misuse      ValueError
        └── Unsupported             misuse      NotImplementedError

The error class decides what the framework does: only ``transient`` is retried.
Codes are stable: tests, dashboards and exit statuses may rely on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from streamfactory.spi.partitions import Partition


class ErrorClass(Enum):
    """The class of an error: it decides about retries and who can fix it."""

    CONFIG = "config"
    PLUGIN = "plugin"
    TRANSIENT = "transient"
    PERMANENT = "permanent"
    DATA_LOSS = "data_loss"
    DECODE = "decode"
    MISUSE = "misuse"


class StreamError(Exception):
    """The root of the tree: what failed, where, and the remedy.

    Args:
        what: One sentence, lower case, offending values in ``repr`` form.
        stream: Name of the stream, where one is known.
        partition: The partition concerned.
        offset: The offset concerned: the next one to read, unless ``what`` says
            otherwise.
        remedy: What the reader of the message should do next.

    All arguments are attributes too. Errors pickle with their attributes; of a cause
    outside this tree only its one-line text is pickled, as ``cause_text``.
    """

    code: ClassVar[str] = "stream_error"
    error_class: ClassVar[ErrorClass] = ErrorClass.PERMANENT
    default_remedy: ClassVar[str | None] = None
    _shown: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        what: str,
        *,
        stream: str | None = None,
        partition: Partition | None = None,
        offset: int | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.stream = stream
        self.partition = partition
        self.offset = offset
        self.remedy = remedy or self.default_remedy
        self.attempts: int | None = None
        self.cause_text: str | None = None

    @property
    def retryable(self) -> bool:
        """Whether an unchanged retry can succeed."""
        return self.error_class is ErrorClass.TRANSIENT

    def at(
        self,
        *,
        stream: str | None = None,
        partition: Partition | None = None,
        offset: int | None = None,
    ) -> Self:
        """Set attributes that are not set yet, and return the error."""
        self.stream = self.stream or stream
        self.partition = self.partition or partition
        self.offset = offset if self.offset is None else self.offset
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return the error as plain values, for ``--json`` and for logs."""
        return {
            "error": self.code,
            "class": self.error_class.value,
            "what": self.what,
            "stream": self.stream,
            "partition": None if self.partition is None else str(self.partition),
            "offset": self.offset,
            "remedy": self.remedy,
            **{name: getattr(self, name) for name in self._shown},
        }

    def __str__(self) -> str:
        place = ", ".join(part for part in self._places() if part)
        text = f"{self.what} ({place})" if place else self.what
        return f"{text}; {self.remedy}" if self.remedy else text

    def _places(self) -> list[str]:
        """Return where it failed, from the stream inwards; empty texts are unknown."""
        return [
            f"stream {self.stream!r}" if self.stream else "",
            f"partition {self.partition}" if self.partition else "",
            f"offset {self.offset}" if self.offset is not None else "",
        ]

    def __reduce__(self) -> tuple[Callable[..., StreamError], tuple[Any, ...]]:
        state = dict(self.__dict__)
        cause = self.__cause__
        if cause is not None and not isinstance(cause, StreamError):
            # An error that the framework translated has the masked text already.
            state["cause_text"] = self.cause_text or f"{type(cause).__name__}: {cause}"
            cause = None
        return _rebuild, (type(self), self.what, state, cause)


def _rebuild(
    cls: type[StreamError], what: str, state: dict[str, Any], cause: StreamError | None
) -> StreamError:
    error = cls.__new__(cls, what)
    Exception.__init__(error, what)
    error.__dict__.update(state)
    error.__cause__ = cause
    return error


# --- config ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Problem:
    """One error, warning or note about a configuration.

    Args:
        key: The key as written; for a missing option, as it should be written.
        what: The cause, with the (masked) value if there is one.
        origin: The origin: ``clicks.toml:12``, ``argument``, ``environment``.
        suggestion: The nearest known key or value, or what to write instead.
        level: ``error``, ``warning``, or ``note`` for an option that applies elsewhere.
    """

    key: str
    what: str
    origin: str = ""
    suggestion: str | None = None
    level: str = "error"

    def __str__(self) -> str:
        text = f"{self.key}: {self.what}"
        if self.suggestion:
            text += f"; {self.suggestion}"
        return f"{text} [{self.origin}]" if self.origin else text


class ConfigError(StreamError, ValueError):
    """The configuration is invalid; all problems are reported at once.

    ``problems`` contains all of them; ``str()`` shows one per line.
    """

    code = "config"
    error_class = ErrorClass.CONFIG

    def __init__(
        self, what: str, *, problems: Sequence[Problem] = (), **where: Any
    ) -> None:
        super().__init__(what, **where)
        self.problems = tuple(problems)

    def to_dict(self) -> dict[str, Any]:
        """Return the error and its problems as plain values."""
        keys = ("key", "what", "origin", "suggestion", "level")
        problems = [{k: getattr(p, k) for k in keys} for p in self.problems]
        return {**super().to_dict(), "problems": problems}

    def __str__(self) -> str:
        lines = [super().__str__(), *(f"  {problem}" for problem in self.problems)]
        return "\n".join(lines)


class UnknownStream(ConfigError, LookupError):
    """No stream with that name is defined in the catalogue."""

    code = "unknown_stream"


class GuaranteeRefused(ConfigError):
    """The user asked for a stronger guarantee than source and sink can give."""

    code = "guarantee_refused"


class SchemaUnknown(ConfigError):
    """The source has no schema and none is declared (rule M6)."""

    code = "schema_unknown"
    default_remedy = "declare one with the option `schema`"


# --- plugin ---------------------------------------------------------------------


class PluginError(StreamError):
    """A problem with a plug-in, not with the data."""

    code = "plugin"
    error_class = ErrorClass.PLUGIN


class UnknownPlugin(PluginError, LookupError):
    """No plug-in with that name is registered.

    Lists those that are, and a near match.
    """

    code = "unknown_plugin"


class NotInstalled(PluginError, ImportError):
    """The client library of a plug-in is not installed; has the install command."""

    code = "not_installed"


class BrokenPlugin(PluginError):
    """Loading a plug-in failed; other plug-ins are not affected."""

    code = "broken_plugin"


class DuplicatePlugin(PluginError):
    """Two distributions provide a plug-in of the same name; names both."""

    code = "duplicate_plugin"
    default_remedy = "uninstall one, or block one with STREAMFACTORY_PLUGINS_BLOCK"


class PluginTooNew(PluginError):
    """The plug-in requires a later SPI level."""

    code = "plugin_too_new"
    default_remedy = "upgrade streamfactory"


class PluginBlocked(PluginError):
    """The plug-in is blocked, or not allowed, by an environment variable."""

    code = "plugin_blocked"


class ContractBroken(PluginError):
    """A backend or decoder broke a rule of the contract; names the rule."""

    code = "contract_broken"
    default_remedy = "report it to the author of the plug-in"


class UntranslatedError(PluginError):
    """A plug-in raised a foreign exception that its translation table lacks."""

    code = "untranslated"
    default_remedy = "report it to the author of the plug-in: its error table lacks it"


# --- transient ------------------------------------------------------------------


class TransientError(StreamError):
    """A temporary failure; the framework retries it within its limits."""

    code = "transient"
    error_class = ErrorClass.TRANSIENT


class ConnectionFailed(TransientError, ConnectionError):
    """The other side is unreachable, or the connection was lost."""

    code = "connection_failed"


class StreamTimeout(TransientError, TimeoutError):
    """The operation timed out. Never an end of a stream."""

    code = "timeout"


class PartialMetadata(TransientError):
    """The source returned metadata of some partitions only, which is never used."""

    code = "partial_metadata"


# --- permanent ------------------------------------------------------------------


class PermanentError(StreamError):
    """An unchanged retry cannot succeed."""

    code = "permanent"
    error_class = ErrorClass.PERMANENT


class TopicNotFound(PermanentError, LookupError):
    """The topic does not exist."""

    code = "topic_not_found"


class NotAuthorized(PermanentError, PermissionError):
    """Credentials are missing, wrong, or insufficient."""

    code = "not_authorized"


class SchemaMismatch(PermanentError, TypeError):
    """Rows do not fit the declared schema; has the column and both types."""

    code = "schema_mismatch"
    _shown = ("column", "row")

    column: str | None = None
    """Dotted path of the column that has a value which does not fit."""
    row: int | None = None
    """Index of the first row that does not fit, from 0, in the rows that were passed;
    None if no row of this schema does, or the row is unknown."""

    def _places(self) -> list[str]:
        return [*super()._places(), "" if self.row is None else f"row {self.row}"]


class PositionRefused(PermanentError, ValueError):
    """A position or checkpoint is corrupt, foreign, or newer than this software."""

    code = "position_refused"
    default_remedy = "repair it, or reset the position; nothing was changed"


class MessageTooLarge(PermanentError, ValueError):
    """The message is longer than the other side accepts; has both lengths."""

    code = "message_too_large"


class WriterFenced(PermanentError):
    """Another process uses this writer id, or a transaction timed out."""

    code = "writer_fenced"
    default_remedy = "use a writer id in one process at a time"


class FormatRefused(PermanentError, ValueError):
    """Stored data is of another program, or of a later version of this one."""

    code = "format_refused"
    default_remedy = "point the stream elsewhere, or upgrade streamfactory"


class StorageFailed(PermanentError, OSError):
    """The file system is full, read-only, or lacks a required feature."""

    code = "storage_failed"


class SpoolFull(PermanentError):
    """A spool is full, and ``spool.full=fail`` ends its receiver."""

    code = "spool_full"
    default_remedy = "raise spool.full.bytes, or let spool.retention release rows"


class ProducerFailed(PermanentError):
    """The producers of a push table failed; chained to their exception."""

    code = "producer_failed"


class ReaderFailed(PermanentError):
    """The reader of a push table failed; chained to its exception."""

    code = "reader_failed"


class CheckpointFailed(PermanentError, OSError):
    """A checkpoint could not be saved; the previous one remains valid."""

    code = "checkpoint_failed"


# --- data loss ------------------------------------------------------------------


class DataLossError(StreamError):
    """Messages are lost. Losses are never skipped silently.

    ``resume`` is for authors: the offset at which the source has messages again. If
    set, the framework applies ``out.of.range`` (rule R7); ``None`` if unknown.
    """

    code = "data_loss"
    error_class = ErrorClass.DATA_LOSS

    def __init__(self, what: str, *, resume: int | None = None, **where: Any) -> None:
        super().__init__(what, **where)
        self.resume = resume


class OffsetOutOfRange(DataLossError, LookupError):
    """The start is before earliest or beyond latest (rule R7).

    ``earliest`` and ``latest`` are the available range; ``None`` if unknown.
    """

    code = "offset_out_of_range"
    _shown = ("earliest", "latest")
    default_remedy = (
        "set `out.of.range` to earliest or latest to continue with a loss record"
    )

    def __init__(
        self,
        what: str,
        *,
        earliest: int | None = None,
        latest: int | None = None,
        **where: Any,
    ) -> None:
        super().__init__(what, **where)
        self.earliest = earliest
        self.latest = latest


class IncarnationChanged(DataLossError):
    """The topic was recreated, and its offsets started again (rule R7)."""

    code = "incarnation_changed"
    _shown = ("expected", "found")
    default_remedy = (
        "set `out.of.range` to earliest or latest to continue with a loss record"
    )

    def __init__(
        self,
        what: str,
        *,
        expected: str | None = None,
        found: str | None = None,
        **where: Any,
    ) -> None:
        super().__init__(what, **where)
        self.expected = expected
        self.found = found


class PartitionVanished(DataLossError, LookupError):
    """A known partition no longer exists (rule M4)."""

    code = "partition_vanished"


class CorruptData(DataLossError, ValueError):
    """Committed data cannot be read: it is truncated or damaged."""

    code = "corrupt_data"
    default_remedy = "restore the file from a backup, or truncate the topic beyond it"


class EpochMarkerLost(DataLossError):
    """The last epoch of a writer was forgotten.

    It is unknown whether an epoch was committed before (rule W7).
    """

    code = "epoch_marker_lost"
    default_remedy = "set `epoch.adopt` to the epoch, once, to write it as a new one"


# --- decode ---------------------------------------------------------------------


class DecodeError(StreamError, ValueError):
    """A message could not be decoded and the policy is ``fail``."""

    code = "decode"
    error_class = ErrorClass.DECODE
    default_remedy = (
        "set `decode.on.error` to skip or null to continue and count such messages"
    )


class ErrorBudgetExceeded(DecodeError):
    """There are more bad messages than `max.errors` or `max.error.ratio` allow."""

    code = "error_budget_exceeded"
    default_remedy = "check the decoder and its schema against the first errors above"


# --- misuse ---------------------------------------------------------------------


class MisuseError(StreamError):
    """A mistake in the calling program."""

    code = "misuse"
    error_class = ErrorClass.MISUSE


class ClosedError(MisuseError, ValueError):
    """The object is closed, or was closed during the call (rule R10)."""

    code = "closed"


class EpochInThePast(MisuseError, ValueError):
    """The epoch is older than the last one that this writer committed."""

    code = "epoch_in_the_past"


class EpochMismatch(MisuseError, ValueError):
    """An epoch was repeated with other content and ``epoch.mismatch`` is ``fail``."""

    code = "epoch_mismatch"


class Unsupported(MisuseError, NotImplementedError):
    """The backend does not support the operation; has an alternative, if any."""

    code = "unsupported"


class ErrorTable:
    """A backend's translation table of foreign exceptions; the most specific type wins.

    Set it as `Backend.translate`. Foreign exceptions never cross the SPI: the framework
    calls the table for every exception of a plug-in that is not of this tree, keeps the
    original as ``__cause__``, masks secrets in both texts, and reports a missing entry
    as a defect of the plug-in (`UntranslatedError`).

    Args:
        types: By exception type; an entry applies to subclasses too.
        codes: By error code, for clients that raise one type for all errors; checked
            first.
        code_of: Returns the code of an exception, or None.

    Raises:
        TypeError: An entry is no class of this tree.

    Example:
        >>> table = ErrorTable({ConnectionError: ConnectionFailed})
        >>> table(BrokenPipeError("closed"))
        ConnectionFailed('BrokenPipeError: closed')
    """

    def __init__(
        self,
        types: Mapping[type[BaseException], type[StreamError]],
        codes: Mapping[Any, type[StreamError]] | None = None,
        code_of: Callable[[BaseException], Any] | None = None,
    ) -> None:
        self._types = dict(types)
        self._codes = dict(codes or {})
        self._code_of = code_of
        for kind, error in (*self._types.items(), *self._codes.items()):
            if not (isinstance(error, type) and issubclass(error, StreamError)):
                msg = f"{kind!r} is translated to {error!r}, which is no StreamError"
                raise TypeError(msg)

    def __call__(self, error: BaseException) -> StreamError | None:
        """Translate ``error``; None if the table has no entry for it or its causes.

        Causes count because clients wrap errors: a ``RuntimeError`` from a
        ``ConnectionResetError`` is a connection error. The outermost match wins.
        """
        for cause in _causes(error):
            found = self._find(cause)
            if found is not None:
                text = f"{type(error).__name__}: {error}"
                if cause is not error:
                    text += f" (caused by {type(cause).__name__}: {cause})"
                return found(text)
        return None

    def _find(self, error: BaseException) -> type[StreamError] | None:
        if self._code_of is not None:
            code = self._code_of(error)
            by_code: type[StreamError] | None = self._codes.get(code)
            if by_code is not None:
                return by_code
        kind = next((k for k in type(error).__mro__ if k in self._types), None)
        return None if kind is None else self._types[kind]


_MOST_CAUSES: Final = 20
"""Causes that are checked; retries within a client may chain thousands."""


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes, each once, without errors of this tree."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen and len(seen) < _MOST_CAUSES:
        seen.add(id(link))
        if not isinstance(link, StreamError):
            yield link
        context = None if link.__suppress_context__ else link.__context__
        link = link.__cause__ or context
