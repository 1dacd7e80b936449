"""Facts about streams, as documents of plain values without secrets.

The functions connect to the stream, and may take as long as its timeouts: `lookups`
calls them in threads of their own.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streamfactory.spark.pipelines.detection import is_pipeline
from streamfactory.spark.targets import group_lags, target_lags
from streamfactory.spi import (
    ConfigError,
    PartitionState,
    Role,
    StreamError,
    TopicNotFound,
)
from streamfactory.ui.catalogue import catalogue
from streamfactory.ui.cells import MOST_COLUMNS
from streamfactory.ui.editing.files import SUFFIX
from streamfactory.ui.looking import Found, look
from streamfactory.wiring.config.configure import inspect
from streamfactory.wiring.config.describing import effective
from streamfactory.wiring.config.guarantees import offline_verdict
from streamfactory.wiring.config.settled import reading_backend
from streamfactory.wiring.core.guard import masked_errors
from streamfactory.wiring.core.plain import plain, total
from streamfactory.wiring.core.shown import all_of, masked
from streamfactory.wiring.decoding.deadletters import DEAD_LETTER_SCHEMA
from streamfactory.wiring.options.spool import PATH as SPOOL_PATH
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.reading.opened import opened_source, refuse_transport
from streamfactory.wiring.reading.raw_messages import as_raw
from streamfactory.wiring.reading.waiting import waiting_text
from streamfactory.wiring.topics.admin import open_admin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streamfactory.spi import PartitionInfo
    from streamfactory.wiring.config.crosschecks import Checked
    from streamfactory.wiring.reading.source import Source

Document = dict[str, Any]

_CLIENT: Final = "streamfactory-ui"


def configuration(name: str) -> Document:
    """The configuration of a stream: problems, effective values, guarantees.

    Connects to nothing.

    Raises:
        ConfigError: config; there is no such stream.
        StreamError: Of its plug-in.
    """
    definition = catalogue().get(name)
    folder, path = catalogue().folder, Path(definition.origin)
    found = inspect(definition, default_manager())
    config = found.config
    document: Document = {
        "name": definition.name,
        "description": definition.description,
        "origin": definition.origin,
        # Of those that the editor changes.
        "file": path.name if path.parent == folder and path.suffix == SUFFIX else None,
        "type": None if config is None else config.type,
        "problems": [
            {"level": one.level, "text": str(one)}
            for one in (*found.errors, *found.warnings)
        ],
        "guarantees": [],
        "effective": [],
        "decoder": None,
        "dead_letters": None,
        "spool": None,
    }
    if config is None:
        return document
    document |= {
        "effective": [one._asdict() for one in effective(config)],
        "guarantees": list(_guarantees(found)),
        "decoder": config.decoder,
        "dead_letters": config.get("dead.letter.stream"),
        "spool": config.get(SPOOL_PATH),
    }
    safe: Document = masked(document, config.mask)
    return safe


def _guarantees(found: Checked) -> Iterator[Document]:
    """The guarantee of each role that the type has, with its reasons."""
    config, backend = found.config, found.plugins.backend
    if config is None or backend is None:
        return
    for role, made in (
        ("source", backend.consumer_factory),
        ("sink", backend.producer_factory),
    ):
        if made is None:
            continue
        reads = role == "source"
        try:
            used = reading_backend(backend, config) if reads else backend
            verdict = offline_verdict(config, used, Role.READ if reads else Role.WRITE)
        except StreamError as error:
            yield {"role": role, "guarantee": None, "reasons": [str(error)]}
        else:
            yield {"role": role, **plain(verdict)}


def topic_facts(name: str) -> Document:
    """What the type shows about a topic, such as its bytes; empty if it has nothing.

    Raises:
        StreamError: The topic cannot be reached.
    """
    definition = catalogue().get(name)
    masks: list[Callable[[str], str]] = []
    with masked_errors(masks):
        try:
            admin = open_admin(definition)
        except ConfigError:
            return {}  # it cannot be written, so it has no administration
        with admin:
            masks.append(admin.config.mask)
            safe: Document = masked(dict(admin.facts()), admin.config.mask)
            return safe


def partitions(name: str) -> Document:
    """Partitions of a stream with their bounds, and its schema.

    Raises:
        Unsupported: misuse; a second connection may take messages of the stream.
        StreamError: The stream cannot be reached, or is no source.
    """
    with opened_source(catalogue().get(name)) as source:
        refuse_transport(source)
        infos = source.metadata.partitions()
        held = [_held(source, info) for info in infos]
        document = {
            "partitions": [
                {
                    "topic": info.partition.topic,
                    "partition": info.partition.id,
                    "earliest": info.earliest,
                    "latest": info.latest,
                    "held": number,
                    "state": info.state.value,
                    "incarnation": info.incarnation,
                    "waiting": waiting_text(
                        info.waiting, source.metadata.waiting_since(info)
                    ),
                }
                for info, number in zip(infos, held, strict=True)
            ],
            "held": total(held),
            "latest": total(info.latest for info in infos),
            "schema": [
                {"name": field.name, "type": str(field.type), "null": field.nullable}
                for field in source.schema
            ],
            "schema_differs": source.differs_from_declared(),
        }
        safe: Document = masked(document, source.config.mask)
        return safe


def lags(target: str) -> list[Document]:
    """The lag of the groups of a stream, or of a pipeline's file, by partition.

    Raises:
        Unsupported: misuse; a second connection may take messages of the stream.
        StreamError: The stream cannot be reached, or a position cannot be read.
    """
    masks: list[Callable[[str], str]] = []
    with masked_errors(masks), ExitStack() as stack:
        if Path(target).suffix == ".toml" and is_pipeline(Path(target)):
            measured = target_lags(stack, target, masks.append, catalogue(), quiet=True)
        else:
            definition = catalogue().get(target)
            with opened_source(definition) as source:
                refuse_transport(source)
            measured = group_lags(stack, definition, masks.append, quiet=True)
        return list(masked(plain(measured), all_of(masks)))


def sample(
    name: str, topic: str, number: int, *, last: bool, raw: bool = False
) -> Document:
    """The first or last rows of one partition, without consuming them.

    Args:
        name: The stream.
        topic: Topic of the partition.
        number: Its id.
        last: Whether the last rows are read, instead of the first.
        raw: Whether messages are shown without decoding.

    Raises:
        Unsupported: misuse; rows of the stream cannot be read again.
        TopicNotFound: permanent; there is no such partition.
        StreamError: The stream cannot be reached, or its messages not be decoded.
    """
    definition = catalogue().get(name)
    with opened_source(as_raw(definition) if raw else definition) as source:
        refuse_transport(source)
        info = next(
            (
                info
                for info in source.metadata.partitions()
                if (info.partition.topic, info.partition.id) == (topic, number)
                and info.state is not PartitionState.VANISHED
            ),
            None,
        )
        if info is None:
            msg = f"partition {number} does not exist"
            remedy = "choose one of the partitions that the stream has"
            raise TopicNotFound(msg, stream=name, remedy=remedy)
        safe: Document = masked(rows_of(source, info, last=last), source.config.mask)
        return safe


def rows_of(source: Source, info: PartitionInfo, *, last: bool) -> Document:
    """The first or last rows of one partition, as texts; secrets are not masked."""
    names = source.schema.names
    shown = names[:MOST_COLUMNS]
    document: Document = {
        "columns": shown,
        "hidden": len(names) - len(shown),
        **asdict(Found()),
        "dead_letters": set(DEAD_LETTER_SCHEMA.names) <= set(names),
    }
    if info.latest is not None and info.latest <= info.start:
        return document
    with closing(source.reader(info.partition, info=info, counted=False)) as reader:
        return document | asdict(look(reader, info, shown, last=last))


def _held(source: Source, info: PartitionInfo) -> int | None:
    if info.state is PartitionState.VANISHED:
        return None
    return source.metadata.behind(info, info.start)
