"""Every error a user or an author of a backend can meet, in one tree.

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

The class word decides what the framework does: only ``transient`` is retried.
Codes are stable: tests, dashboards and exit statuses may rely on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from streamfactory.spi.positions import Partition


class ErrorClass(Enum):
    """What an error is about, and so who can do something about it."""

    CONFIG = "config"
    PLUGIN = "plugin"
    TRANSIENT = "transient"
    PERMANENT = "permanent"
    DATA_LOSS = "data_loss"
    DECODE = "decode"
    MISUSE = "misuse"


class StreamError(Exception):
    """The root. Says what happened, where, and what to do next.

    Args:
        what: One sentence, lower case, offending values in ``repr`` form.
        stream: Name of the stream, where one is known.
        partition: The partition concerned.
        offset: The offset concerned: the next one to read, unless ``what`` says other.
        remedy: What the reader of the message should do next.

    All arguments are attributes too. Errors pickle with their attributes; of a cause
    outside this tree only its one-line text crosses, as ``cause_text``.
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
        """True where trying again, unchanged, can succeed."""
        return self.error_class is ErrorClass.TRANSIENT

    def at(
        self,
        *,
        stream: str | None = None,
        partition: Partition | None = None,
        offset: int | None = None,
    ) -> Self:
        """Fill in what the raiser could not know; what is set already stays."""
        self.stream = self.stream or stream
        self.partition = self.partition or partition
        self.offset = offset if self.offset is None else self.offset
        return self

    def to_dict(self) -> dict[str, Any]:
        """The error as plain values, for ``--json`` and for logs."""
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
        where = [
            f"stream {self.stream!r}" if self.stream else "",
            f"partition {self.partition}" if self.partition else "",
            f"offset {self.offset}" if self.offset is not None else "",
        ]
        place = ", ".join(part for part in where if part)
        text = f"{self.what} ({place})" if place else self.what
        return f"{text}; {self.remedy}" if self.remedy else text

    def __reduce__(self) -> tuple[Callable[..., StreamError], tuple[Any, ...]]:
        state = dict(self.__dict__)
        cause = self.__cause__
        if cause is not None and not isinstance(cause, StreamError):
            # What the framework translated carries the masked text already.
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
    """One thing wrong, or worth knowing, in a configuration."""

    key: str
    """The key as it was written; for something missing, as it should be written."""
    what: str
    """What is wrong, in words, with the (masked) value where there is one."""
    origin: str = ""
    """Where it came from: ``clicks.toml:12``, ``argument``, ``environment``."""
    suggestion: str | None = None
    """The nearest known key or value, or what to write instead."""
    level: str = "error"
    """``error``, ``warning``, or ``note`` for what is fine in another place."""

    def __str__(self) -> str:
        text = f"{self.key}: {self.what}"
        if self.suggestion:
            text += f"; {self.suggestion}"
        return f"{text} [{self.origin}]" if self.origin else text


class ConfigError(StreamError, ValueError):
    """The caller must change something; every problem is told at once.

    ``problems`` has one `Problem` each; ``str()`` shows them all, one a line.
    """

    code = "config"
    error_class = ErrorClass.CONFIG

    def __init__(
        self, what: str, *, problems: Sequence[Problem] = (), **where: Any
    ) -> None:
        super().__init__(what, **where)
        self.problems = tuple(problems)

    def to_dict(self) -> dict[str, Any]:
        """The error and its problems as plain values."""
        keys = ("key", "what", "origin", "suggestion", "level")
        problems = [{k: getattr(p, k) for k in keys} for p in self.problems]
        return {**super().to_dict(), "problems": problems}

    def __str__(self) -> str:
        lines = [super().__str__(), *(f"  {problem}" for problem in self.problems)]
        return "\n".join(lines)


class UnknownStream(ConfigError, LookupError):
    """No stream of that name is defined where names are looked up."""

    code = "unknown_stream"


class GuaranteeRefused(ConfigError):
    """The user asked for a stronger guarantee than source and sink can give."""

    code = "guarantee_refused"


class SchemaUnknown(ConfigError):
    """The source has no schema of its own and none is declared (rule M6)."""

    code = "schema_unknown"
    default_remedy = "declare one with the option `schema`"


# --- plugin ---------------------------------------------------------------------


class PluginError(StreamError):
    """Something about a plug-in, not about the data."""

    code = "plugin"
    error_class = ErrorClass.PLUGIN


class UnknownPlugin(PluginError, LookupError):
    """No plug-in of that name is registered; lists what is, and a near match."""

    code = "unknown_plugin"


class NotInstalled(PluginError, ImportError):
    """The plug-in is there but its client library is not; says the command."""

    code = "not_installed"


class BrokenPlugin(PluginError):
    """Loading failed; the plug-in is set aside and hurts no other."""

    code = "broken_plugin"


class DuplicatePlugin(PluginError):
    """Two distributions claim one name; names both."""

    code = "duplicate_plugin"
    default_remedy = "uninstall one, or block one with STREAMFACTORY_PLUGINS_BLOCK"


class PluginTooNew(PluginError):
    """Written for a later SPI level than this one."""

    code = "plugin_too_new"
    default_remedy = "upgrade streamfactory"


class PluginBlocked(PluginError):
    """Blocked, or not allowed, by an environment variable."""

    code = "plugin_blocked"


class ContractBroken(PluginError):
    """A backend or decoder broke a rule of the contract; names the rule."""

    code = "contract_broken"
    default_remedy = "report it to the author of the plug-in"


class UntranslatedError(PluginError):
    """A foreign exception reached the SPI and no translation was found for it."""

    code = "untranslated"
    default_remedy = "report it to the author of the plug-in: its translation lacks it"


# --- transient ------------------------------------------------------------------


class TransientError(StreamError):
    """Passing trouble; the framework tries again within its limits."""

    code = "transient"
    error_class = ErrorClass.TRANSIENT


class ConnectionFailed(TransientError, ConnectionError):
    """The other side could not be reached, or went away."""

    code = "connection_failed"


class StreamTimeout(TransientError, TimeoutError):
    """No answer within the time allowed. Never an end of a stream."""

    code = "timeout"


class PartialMetadata(TransientError):
    """The source answered for some partitions only; never taken for a whole answer."""

    code = "partial_metadata"


# --- permanent ------------------------------------------------------------------


class PermanentError(StreamError):
    """Trying again, unchanged, cannot help."""

    code = "permanent"
    error_class = ErrorClass.PERMANENT


class TopicNotFound(PermanentError, LookupError):
    """The topic does not exist."""

    code = "topic_not_found"


class NotAuthorized(PermanentError, PermissionError):
    """Credentials are missing, wrong, or not enough."""

    code = "not_authorized"


class SchemaMismatch(PermanentError, TypeError):
    """Rows do not fit the declared schema; names the column and both types."""

    code = "schema_mismatch"


class PositionRefused(PermanentError, ValueError):
    """A position or checkpoint is corrupt, foreign, or newer than this software."""

    code = "position_refused"
    default_remedy = "nothing was changed: repair it, or reset the position"


class MessageTooLarge(PermanentError, ValueError):
    """The other side takes no message of that length; names both lengths."""

    code = "message_too_large"


class WriterFenced(PermanentError):
    """Another process writes under this writer id, or a transaction ran out of time."""

    code = "writer_fenced"
    default_remedy = "one process at a time may write under a writer id"


class FormatRefused(PermanentError, ValueError):
    """What is stored is of another program, or of a later version of this one."""

    code = "format_refused"
    default_remedy = "point the stream elsewhere, or upgrade streamfactory"


class StorageFailed(PermanentError, OSError):
    """A file system refused: full, read-only, or without a needed ability."""

    code = "storage_failed"


class SpoolFull(PermanentError):
    """A spool has reached its bound, and ``spool.full=fail`` ends its receiver."""

    code = "spool_full"
    default_remedy = "raise spool.full.bytes, or let spool.retention release rows"


class ProducerFailed(PermanentError):
    """The producers of a push table failed; chained to their exception."""

    code = "producer_failed"


class ReaderFailed(PermanentError):
    """The reader of a push table failed; chained to its exception."""

    code = "reader_failed"


class CheckpointFailed(PermanentError, OSError):
    """A checkpoint could not be saved; the previous one still holds."""

    code = "checkpoint_failed"


# --- data loss ------------------------------------------------------------------


class DataLossError(StreamError):
    """Messages are lost. Never passed over silently.

    ``resume`` is for authors: the offset at which the source has messages again. With
    it the framework applies ``out.of.range`` (rule R7); ``None`` where not known.
    """

    code = "data_loss"
    error_class = ErrorClass.DATA_LOSS

    def __init__(self, what: str, *, resume: int | None = None, **where: Any) -> None:
        super().__init__(what, **where)
        self.resume = resume


class OffsetOutOfRange(DataLossError, LookupError):
    """The start lies before earliest or beyond latest (rule R7).

    ``earliest`` and ``latest`` say what is available; ``None`` where unknown.
    """

    code = "offset_out_of_range"
    _shown = ("earliest", "latest")
    default_remedy = "set `out.of.range` to earliest or latest to go on with a record"

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
    """What the offsets counted is gone and begun again (rule R7)."""

    code = "incarnation_changed"
    _shown = ("expected", "found")
    default_remedy = "set `out.of.range` to earliest or latest to go on with a record"

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
    """A partition that was known is no longer there (rule M4)."""

    code = "partition_vanished"


class CorruptData(DataLossError, ValueError):
    """What was committed cannot be read: torn, truncated, or changed on the medium."""

    code = "corrupt_data"
    default_remedy = "restore the file from a copy, or truncate the topic beyond it"


class EpochMarkerLost(DataLossError):
    """The record of a writer's last epoch is gone: old or new cannot be told (W7)."""

    code = "epoch_marker_lost"
    default_remedy = "name the epoch once with `epoch.adopt` to take it for new"


# --- decode ---------------------------------------------------------------------


class DecodeError(StreamError, ValueError):
    """A message could not be decoded and the policy is ``fail``."""

    code = "decode"
    error_class = ErrorClass.DECODE
    default_remedy = "set `decode.on.error` to skip or null to go on with a count"


class ErrorBudgetExceeded(DecodeError):
    """More bad messages than `max.errors` or `max.error.ratio` allow."""

    code = "error_budget_exceeded"
    default_remedy = "look at the first errors above: the decoder or its schema is off"


# --- misuse ---------------------------------------------------------------------


class MisuseError(StreamError):
    """A mistake in the calling program."""

    code = "misuse"
    error_class = ErrorClass.MISUSE


class ClosedError(MisuseError, ValueError):
    """Used after, or closed during, the call (rule R10)."""

    code = "closed"


class EpochInThePast(MisuseError, ValueError):
    """The epoch is older than the last one that this writer committed."""

    code = "epoch_in_the_past"


class EpochMismatch(MisuseError, ValueError):
    """An epoch came again with other content and ``epoch.mismatch`` is ``fail``."""

    code = "epoch_mismatch"


class Unsupported(MisuseError, NotImplementedError):
    """The backend does not have this ability; names the way that works, if any."""

    code = "unsupported"


class ErrorTable:
    """A backend's translation of foreign exceptions, the most specific type first.

    Give it to `Backend.translate`. Foreign exceptions never cross the SPI: the
    framework calls the table for whatever an author's method raises outside this tree,
    keeps the original as ``__cause__``, masks secrets in both texts, and takes a
    missing entry for a defect of the plug-in (`UntranslatedError`).

    Args:
        types: By exception type; an entry holds for the type's descendants.
        codes: By error code, for clients that raise one type for everything; looked at
            first.
        code_of: Answers the code of an exception, or None.

    Example:
        >>> table = ErrorTable({ConnectionError: ConnectionFailed})
        >>> table(BrokenPipeError("gone"))
        ConnectionFailed('BrokenPipeError: gone')
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

    def __call__(self, error: BaseException) -> StreamError | None:
        """Translate ``error``; None where the table has nothing for it.

        Nor for what caused it: clients wrap errors, and a ``RuntimeError`` from a
        ``ConnectionResetError`` is one of the connection. The outermost that the table
        knows decides.
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
"""Causes that are looked at; a retry within a client may chain thousands."""


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error, and what caused it, each once; not errors of our tree."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen and len(seen) < _MOST_CAUSES:
        seen.add(id(link))
        if not isinstance(link, StreamError):
            yield link
        context = None if link.__suppress_context__ else link.__context__
        link = link.__cause__ or context
