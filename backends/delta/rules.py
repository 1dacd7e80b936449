"""Which Delta tables can be written: features that a writer has to support."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamfactory.backends.delta.state import FEED
from streamfactory.spi import Unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfactory.backends.delta.actions import Metadata, Protocol

_NEWEST: Final = 7
"""Version of the protocol."""
_FEATURES: Final = frozenset(
    (
        # Appended rows are subject to none of them without the properties below.
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "columnMapping",
        "deletionVectors",
        "domainMetadata",
        "generatedColumns",
        "identityColumns",
        "invariants",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    )
)
_IN_SCHEMA: Final = {
    '"delta.invariants"': "invariants",
    '"delta.generationExpression"': "generated columns",
    '"delta.identity.': "identity columns",
}
_CONSTRAINT: Final = "delta.constraints."
_FORGETS: Final = "delta.setTransactionRetentionDuration"
_MAPPING: Final = "delta.columnMapping.mode"
_SETTABLE: Final = frozenset(
    f"delta.{name}"
    for name in (
        "appendOnly",
        "checkpointInterval",
        "dataSkippingNumIndexedCols",
        "deletedFileRetentionDuration",
        "enableExpiredLogCleanup",
        "logRetentionDuration",
        "parquet.compression.codec",
        "targetFileSize",
    )
)
"""Properties of tables of the first version of the protocol."""
_KEEPS: Final = {
    "delta.appendOnly": "it is append-only",
    FEED: "its change data feed is on, which is not written",
}


def check_writable(metadata: Metadata, protocol: Protocol) -> None:
    """Refuse a table whose rows a writer has to check or change in ways unknown here.

    Raises:
        Unsupported: misuse.
    """
    lacks = sorted(protocol.writer_features - _FEATURES)
    if protocol.writer_version > _NEWEST:
        lacks.append(f"version {protocol.writer_version} of the protocol")
    lacks += [name for text, name in _IN_SCHEMA.items() if text in metadata.schema]
    if any(key.startswith(_CONSTRAINT) for key in metadata.configuration):
        lacks.append("check constraints")
    if metadata.configuration.get(_MAPPING, "none") != "none":
        lacks.append("column mapping")
    if lacks:
        what = f"the table cannot be written: it has {', '.join(lacks)}"
        raise Unsupported(what, remedy="write it with Spark or another engine of Delta")


def check_properties(properties: Mapping[str, str]) -> None:
    """Refuse properties of a new table that need a feature, which it would lack.

    Raises:
        Unsupported: misuse.
    """
    for name in properties:
        if name.startswith("delta.") and name not in _SETTABLE:
            what = f"a table is not created with the property {name}"
            known = ", ".join(sorted(_SETTABLE))
            raise Unsupported(what, remedy=f"set other names, or {known}")


def check_memory(metadata: Metadata) -> None:
    """Refuse a table whose checkpoints leave out writers that have paused for a while.

    An epoch that such a writer repeats would be committed twice.

    Raises:
        Unsupported: misuse.
    """
    if _FORGETS in metadata.configuration:
        what = (
            f"the table has the property {_FORGETS}: it forgets the epochs of writers"
        )
        remedy = f"unset {_FORGETS}, or write without a writer id (at-least-once)"
        raise Unsupported(what, remedy=remedy)


def check_replaceable(metadata: Metadata) -> None:
    """Refuse a table whose rows may not be replaced, or only with a record of it.

    Raises:
        Unsupported: misuse.
    """
    is_on = {
        key: value.lower() == "true" for key, value in metadata.configuration.items()
    }
    for key, cause in _KEEPS.items():
        if is_on.get(key):
            what = f"rows of the table cannot be updated, deleted or replaced: {cause}"
            raise Unsupported(what, remedy=f"set the table property {key}=false")
