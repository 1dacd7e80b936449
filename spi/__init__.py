"""What an author of a backend or decoder imports, and nothing else.

Read in this order: `consumer` (and its twin `producer`), `metadata`, `batch`,
`positions`, `options`, `claims`, `errors`, `hooks`. Importing this package loads no
Arrow. ``help(streamfactory.spi.Fetched)`` describes one class;
``docs/spi-reference.md`` lists all classes, without the methods that Python adds.

Compatibility. ``SPI_LEVEL`` is a whole number. Within a level names, signatures and
meanings stay; additions have defaults, so that plug-ins of the level keep working. A
change that could break a plug-in raises the level, is announced one release before, and
the framework keeps loading plug-ins of the previous level for at least two minor
releases. A plug-in of a later level is not loaded: using it raises `PluginTooNew`.
Error codes, option keys and the text form of positions outlive levels: old ones stay
readable.
"""

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Final

from streamfactory.spi.errors import (
    BrokenPlugin,
    CheckpointFailed,
    ClosedError,
    ConfigError,
    ConnectionFailed,
    ContractBroken,
    CorruptData,
    DataLossError,
    DecodeError,
    DuplicatePlugin,
    EpochInThePast,
    EpochMarkerLost,
    EpochMismatch,
    ErrorBudgetExceeded,
    ErrorClass,
    ErrorTable,
    FormatRefused,
    GuaranteeRefused,
    IncarnationChanged,
    MessageTooLarge,
    MisuseError,
    NotAuthorized,
    NotInstalled,
    OffsetOutOfRange,
    PartialMetadata,
    PartitionVanished,
    PermanentError,
    PluginBlocked,
    PluginError,
    PluginTooNew,
    PositionRefused,
    Problem,
    ProducerFailed,
    ReaderFailed,
    SchemaMismatch,
    SchemaUnknown,
    SpoolFull,
    StorageFailed,
    StreamError,
    StreamTimeout,
    TopicNotFound,
    TransientError,
    UnknownPlugin,
    UnknownStream,
    Unsupported,
    UntranslatedError,
    WriterFenced,
)
from streamfactory.spi.hooks import (
    SPI_LEVEL,
    Backend,
    Decoder,
    ReferenceScheme,
    ResolvedReference,
    Role,
    Yields,
    hookimpl,
)

if TYPE_CHECKING:
    from streamfactory.spi.batch import (
        BatchState,
        Fetched,
        FetchLimits,
        Loss,
        MessageBatch,
    )
    from streamfactory.spi.checkpoint import Checkpoint, CheckpointStore
    from streamfactory.spi.claims import (
        Claims,
        EpochVisibility,
        Guarantee,
        Verdict,
    )
    from streamfactory.spi.config import StreamConfig
    from streamfactory.spi.consumer import (
        ConsumerFactory,
        PartitionLevelConsumer,
        StreamLevelConsumer,
    )
    from streamfactory.spi.decoder import (
        BadMessage,
        DecodeContext,
        Decoded,
        MessageDecoder,
        MessageEncoder,
        Misfit,
        PerMessageDecoder,
    )
    from streamfactory.spi.ends import (
        Abandoned,
        Cancelled,
        End,
        Failed,
        Finished,
        ReaderFinished,
    )
    from streamfactory.spi.envelope import envelope_schema, headers_type
    from streamfactory.spi.metadata import (
        Extent,
        MetadataProvider,
        PartitionInfo,
        PartitionState,
    )
    from streamfactory.spi.metrics import Metric, MetricKind, Recorder, Sample
    from streamfactory.spi.options import (
        BOOLEAN,
        FUNCTION,
        INTEGER,
        JSON_OBJECT,
        LIST,
        NUMBER,
        PATH,
        PERIOD,
        SCHEMA,
        SIZE,
        STRING,
        Option,
        OptionType,
        choice,
    )
    from streamfactory.spi.partitions import Partition
    from streamfactory.spi.positions import Position, Skipped
    from streamfactory.spi.producer import (
        CommitMessage,
        LastCommit,
        Outgoing,
        ProducerFactory,
        StreamCommitter,
        StreamWriter,
        Summary,
        WriteContext,
        WriteKind,
    )
    from streamfactory.spi.servers import StreamServer
    from streamfactory.spi.soundness import (
        BatchValidator,
        SoundRows,
    )
    from streamfactory.spi.topics import TopicAdmin, Verification

__all__ = [
    "BOOLEAN",
    "FUNCTION",
    "INTEGER",
    "JSON_OBJECT",
    "LIST",
    "NUMBER",
    "PATH",
    "PERIOD",
    "SCHEMA",
    "SIZE",
    "SPI_LEVEL",
    "STRING",
    "Abandoned",
    "Backend",
    "BadMessage",
    "BatchState",
    "BatchValidator",
    "BrokenPlugin",
    "Cancelled",
    "Checkpoint",
    "CheckpointFailed",
    "CheckpointStore",
    "Claims",
    "ClosedError",
    "CommitMessage",
    "ConfigError",
    "ConnectionFailed",
    "ConsumerFactory",
    "ContractBroken",
    "CorruptData",
    "DataLossError",
    "DecodeContext",
    "DecodeError",
    "Decoded",
    "Decoder",
    "DuplicatePlugin",
    "End",
    "EpochInThePast",
    "EpochMarkerLost",
    "EpochMismatch",
    "EpochVisibility",
    "ErrorBudgetExceeded",
    "ErrorClass",
    "ErrorTable",
    "Extent",
    "Failed",
    "FetchLimits",
    "Fetched",
    "Finished",
    "FormatRefused",
    "Guarantee",
    "GuaranteeRefused",
    "IncarnationChanged",
    "LastCommit",
    "Loss",
    "MessageBatch",
    "MessageDecoder",
    "MessageEncoder",
    "MessageTooLarge",
    "MetadataProvider",
    "Metric",
    "MetricKind",
    "Misfit",
    "MisuseError",
    "NotAuthorized",
    "NotInstalled",
    "OffsetOutOfRange",
    "Option",
    "OptionType",
    "Outgoing",
    "PartialMetadata",
    "Partition",
    "PartitionInfo",
    "PartitionLevelConsumer",
    "PartitionState",
    "PartitionVanished",
    "PerMessageDecoder",
    "PermanentError",
    "PluginBlocked",
    "PluginError",
    "PluginTooNew",
    "Position",
    "PositionRefused",
    "Problem",
    "ProducerFactory",
    "ProducerFailed",
    "ReaderFailed",
    "ReaderFinished",
    "Recorder",
    "ReferenceScheme",
    "ResolvedReference",
    "Role",
    "Sample",
    "SchemaMismatch",
    "SchemaUnknown",
    "Skipped",
    "SoundRows",
    "SpoolFull",
    "StorageFailed",
    "StreamCommitter",
    "StreamConfig",
    "StreamError",
    "StreamLevelConsumer",
    "StreamServer",
    "StreamTimeout",
    "StreamWriter",
    "Summary",
    "TopicAdmin",
    "TopicNotFound",
    "TransientError",
    "UnknownPlugin",
    "UnknownStream",
    "Unsupported",
    "UntranslatedError",
    "Verdict",
    "Verification",
    "WriteContext",
    "WriteKind",
    "WriterFenced",
    "Yields",
    "choice",
    "envelope_schema",
    "headers_type",
    "hookimpl",
]

_LATER: Final = {
    "batch": "BatchState Fetched FetchLimits Loss MessageBatch",
    "checkpoint": "Checkpoint CheckpointStore",
    "claims": "Claims EpochVisibility Guarantee Verdict",
    "config": "StreamConfig",
    "consumer": "ConsumerFactory PartitionLevelConsumer StreamLevelConsumer",
    "decoder": (
        "BadMessage DecodeContext Decoded MessageDecoder MessageEncoder Misfit "
        "PerMessageDecoder"
    ),
    "ends": "Abandoned Cancelled End Failed Finished ReaderFinished",
    "envelope": "envelope_schema headers_type",
    "metadata": "Extent MetadataProvider PartitionInfo PartitionState",
    "metrics": "Metric MetricKind Recorder Sample",
    "options": (
        "BOOLEAN FUNCTION INTEGER JSON_OBJECT LIST NUMBER PATH PERIOD SCHEMA SIZE "
        "STRING Option OptionType choice"
    ),
    "partitions": "Partition",
    "positions": "Position Skipped",
    "producer": (
        "CommitMessage LastCommit Outgoing ProducerFactory StreamCommitter "
        "StreamWriter Summary WriteContext WriteKind"
    ),
    "servers": "StreamServer",
    "soundness": "BatchValidator SoundRows",
    "topics": "TopicAdmin Verification",
}
"""Names that are imported at their first use, by module: few programs use all."""
_MODULES: Final = {name: at for at, names in _LATER.items() for name in names.split()}
_MOVED = {
    "Setting": "config",
    "UNPACKED_BYTES": "soundness",
    "UNPACKED_ROW_BYTES": "soundness",
    "can_rescale": "soundness",
    "combine": "claims",
    "sink_guarantee": "claims",
    "source_guarantee": "claims",
}
"""Names that only the framework uses, by their module; deprecated here."""


def __getattr__(name: str) -> object:
    if name in _MODULES:
        value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        globals()[name] = value  # found without this function from now on
        return value
    if name not in _MOVED:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    module = f"{__name__}.{_MOVED[name]}"
    what = f"import {name} from {module}: streamfactory.spi will not have it in 1.0"
    warnings.warn(what, DeprecationWarning, stacklevel=2)
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted(__all__)
