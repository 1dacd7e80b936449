"""Descriptions of options, configurations and backends to print; connects to nothing.

Option declarations yield tables, a validated configuration its
effective values, a backend's classes its abilities and guarantees.
"""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from streamfactory.spi import (
    Claims,
    ConsumerFactory,
    MetadataProvider,
    PartitionLevelConsumer,
    ProducerFactory,
    StreamCommitter,
)
from streamfactory.spi.claims import sink_guarantee, source_guarantee
from streamfactory.spi.masking import MASK, mask_value
from streamfactory.wiring.options.masking import looks_secret

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streamfactory.spi import Backend, Option, StreamConfig, Verdict

# --- options --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OptionRow:
    """One option as a row of a table."""

    key: str
    """As written in a configuration."""
    type: str
    default: str | None
    required: bool
    secret: bool
    doc: str
    aliases: tuple[str, ...] = ()
    applies: tuple[str, ...] = ()
    """``read``, ``write``, ``spark``; empty means always."""
    example: str | None = None
    former: tuple[str, ...] = ()
    """Deprecated spellings."""


def option_rows(options: Iterable[Option], prefix: str = "") -> list[OptionRow]:
    """Return the rows of a table, in the order of the declarations."""
    return [
        OptionRow(
            prefix + option.key,
            option.type.name,
            option.default,
            option.required,
            option.secret,
            option.doc,
            tuple(prefix + alias for alias in option.aliases),
            tuple(sorted(option.applies)),
            option.example,
            tuple(prefix + key for key in option.former),
        )
        for option in options
    ]


# --- effective values -----------------------------------------------------------


class Effective(NamedTuple):
    """One effective value and its origin."""

    key: str
    value: str
    """As written; a literal secret masked, a reference unresolved."""
    origin: str


def effective(config: StreamConfig) -> list[Effective]:
    """Return every value of a configuration with its origin, by key; secrets masked."""
    settings = [*config.settings.values(), *config.decoder_settings.values()]
    for namespace in config.client.values():
        settings += namespace.values()
    values = [Effective(s.full_key, s.shown, s.origin) for s in settings]
    values += [
        Effective(
            f"stream.meta.{key}", MASK if looks_secret(key) else mask_value(text), ""
        )
        for key, text in config.meta.items()
    ]
    return sorted(values)


# --- abilities ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Abilities:
    """Abilities of a backend, derived from its classes.

    None: unknown until it is used.
    """

    read: bool
    write: bool
    offsets_by_time: bool | None = False
    topic_list: bool | None = False
    schema: bool | None = False
    wake: bool | None = False
    own_group: bool | None = False
    keeps_checkpoints: bool | None = False
    replace: bool | None = False
    manage_topics: bool | None = False
    carries: tuple[str, ...] = ()
    """Those of ``_key``, ``_headers``, ``_timestamp``, ``_topic`` that a sink
    stores."""


def abilities(backend: Backend) -> Abilities:
    """Derive abilities from overridden methods, without calling the backend's code.

    The classes of providers, consumers and committers are searched in the modules of
    the factory's class and its bases: if none is found, or only some have an ability,
    the result is None.
    """
    reads, writes = backend.consumer_factory, backend.producer_factory
    found: dict[str, Any] = {"manage_topics": backend.topic_admin is not None}
    if reads is not None:
        found |= {
            "offsets_by_time": _made(reads, MetadataProvider, "fetch_offsets_at"),
            "topic_list": _made(reads, MetadataProvider, "fetch_topics"),
            "schema": _made(reads, MetadataProvider, "fetch_schema"),
            "wake": _made(reads, PartitionLevelConsumer, "wake"),
            "own_group": _overrides(
                reads, ConsumerFactory, "create_stream_level_consumer"
            ),
            "keeps_checkpoints": _overrides(
                reads, ConsumerFactory, "create_checkpoint_store"
            ),
        }
    if writes is not None:
        found["replace"] = _made(writes, StreamCommitter, "replace")
        found["carries"] = tuple(sorted(writes.CARRIES))
    return Abilities(reads is not None, writes is not None, **found)


def _made(factory: type, kind: type, method: str) -> bool | None:
    """Whether the objects that a factory creates override a method."""
    modules = {sys.modules[parent.__module__] for parent in factory.__mro__}
    classes = [
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, kind)
        and not inspect.isabstract(value)
    ]
    answers = {_overrides(value, kind, method) for value in classes}
    return answers.pop() if len(answers) == 1 else None


def _overrides(value: type, base: type, method: str) -> bool:
    return getattr(value, method) is not getattr(base, method)


# --- guarantees -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Promise:
    """Claims of a type in one role, and the strongest guarantee that follows."""

    claims: Claims
    verdict: Verdict


def promises(backend: Backend) -> tuple[Promise | None, Promise | None]:
    """Return the strongest guarantees of any configuration, as source and as sink."""
    source = sink = None
    reads: type[ConsumerFactory] | None = backend.consumer_factory
    writes: type[ProducerFactory] | None = backend.producer_factory
    if reads is not None:
        source = Promise(reads.CLAIMS, source_guarantee(reads.CLAIMS))
    if writes is not None:
        sink = Promise(writes.CLAIMS, sink_guarantee(writes.CLAIMS, writer_id=True))
    return source, sink
