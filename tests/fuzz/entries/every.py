"""All entry points, in groups that share a child process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.fuzz.entries import (
    decoding,
    files,
    flights,
    kept,
    letters,
    logs,
    pages,
    people,
    rings,
    sockets,
    tables,
    texts,
    zeromq,
)

if TYPE_CHECKING:
    from tests.fuzz.entries.base import Entry

GROUPS: Final[dict[str, tuple[type[Entry], ...]]] = {
    "socket": (
        sockets.SocketStreams,
        sockets.SocketBodies,
        sockets.SocketHeaders,
        sockets.SocketOpened,
    ),
    "flight": (
        flights.FlightActions,
        flights.FlightDiskActions,
        flights.FlightTickets,
        flights.FlightUploads,
        flights.FlightSessions,
        flights.FlightWire,
        flights.FlightFailures,
        flights.FlightAnswers,
        flights.FlightDeliveries,
    ),
    "zeromq": (zeromq.ZeromqStreams, zeromq.ZeromqFrames),
    "files": (
        files.ForeignStreams,
        files.ForeignFiles,
        files.GrowingFiles,
        files.OpenedFiles,
        files.ForeignParquet,
        files.CsvInputs,
        files.JsonInputs,
        files.ArrowInputs,
        files.ParquetInputs,
        kept.FolderManifests,
        kept.StagedRows,
        letters.DeadLetters,
    ),
    "log": (
        logs.LogSegments,
        logs.LogInlineSegments,
        logs.LogParquetSegments,
        logs.LogStagedFiles,
        logs.LogRecords,
        logs.LogSnapshots,
        logs.LogIndexes,
        logs.LogKeeping,
    ),
    "rings": (rings.ShmTopics, rings.ShmDictionaries),
    "tables": (
        tables.DeltaTables,
        tables.DeltaMappedTables,
        tables.IcebergTables,
        tables.HudiTables,
    ),
    "pages": (
        pages.PageActions,
        pages.PageQueries,
        pages.SearchExpressions,
        people.PageHeaders,
        people.PageMasks,
    ),
    "decoders": (
        decoding.ArrowDecoding,
        decoding.JsonDecoding,
        decoding.CsvDecoding,
        decoding.TextDecoding,
        decoding.AvroDecoding,
        decoding.AvroSchemas,
        decoding.ProtobufDecoding,
        decoding.Descriptors,
        decoding.PackedPayloads,
        decoding.RegistryAnswers,
    ),
    "texts": (
        texts.TomlConfigs,
        texts.JsonConfigs,
        texts.PropertiesConfigs,
        texts.PinotConfigs,
        texts.HopConfigs,
        texts.PipelineConfigs,
        texts.Schemas,
        texts.Positions,
        texts.GroupCheckpoints,
        texts.QueryCheckpoints,
        texts.PipelineRecords,
        texts.KafkaMarkers,
    ),
}

ENTRIES: Final = {entry.NAME: entry for group in GROUPS.values() for entry in group}
