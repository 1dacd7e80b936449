"""Opening both ends of a copy, and what is between them."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from streamfactory.spi import ConfigError, envelope_schema
from streamfactory.transfer.copying import Copy
from streamfactory.wiring.config.configure import Configured, configure
from streamfactory.wiring.plugins.manager import PluginManager, default_manager
from streamfactory.wiring.reading.source import Source
from streamfactory.wiring.receiving.embedded import receive_embedded
from streamfactory.wiring.streams.stream import find_definition
from streamfactory.wiring.writing.creating import ensure_topic
from streamfactory.wiring.writing.diverting import open_target
from streamfactory.wiring.writing.sink import Sink

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from streamfactory.spi import CheckpointStore
    from streamfactory.wiring.config.definition import StreamDefinition
    from streamfactory.wiring.testing.faults import Faults

    Named = str | Mapping[str, Any] | StreamDefinition

_CARRIED: Final = {"metadata.columns": "true", "includeHeaders": "true"}


def open_copy(
    source: Named,
    sink: Named,
    *,
    source_options: Mapping[str, str] | None = None,
    sink_options: Mapping[str, str] | None = None,
    writer_id: str | None = None,
    checkpoints: CheckpointStore | None = None,
    create: bool = True,
    partitions: int | None = None,
    allow_class_paths: bool = False,
    plugins: PluginManager | None = None,
    faults: tuple[Faults | None, Faults | None] = (None, None),
) -> Copy:
    """Open both ends of a copy; the sink's topic is there when this returns.

    Args:
        source: The name of a stream in the catalogue, or its properties.
        sink: Likewise.
        source_options: Properties that replace those of the source.
        sink_options: Likewise, of the sink.
        writer_id: Who writes; by default a name made of both streams'.
        checkpoints: Where positions are kept beside the sink.
        create: Whether the sink's topic may be created.
        partitions: Of a topic that is created; by default what the sink's configuration
            says, else as many as the source has.
        allow_class_paths: Whether configurations may name Python objects.
        plugins: Where types are found; the process's own by default.
        faults: Around the source, and around the sink: the simulator for tests.

    Raises:
        ConfigError: config; every problem of one end at once.
        GuaranteeRefused: config; ``guarantee`` of either end asks for more.
        StreamError: As either end raises.
    """
    plugins = plugins or default_manager()

    def configured(named: Named, use: str, options: Mapping[str, str]) -> Configured:
        definition = find_definition(named).with_overrides(options)
        return configure(
            definition, plugins, use=use, allow_class_paths=allow_class_paths
        )

    of_sink = configured(sink, "write", sink_options or {})
    with ExitStack() as unless_made:
        to = _open_sink(of_sink, faults[1])
        unless_made.callback(to.close)
        given = dict(source_options or {})
        of_source = configured(source, "read", given)
        opened = _open_source(of_source, faults[0])
        unless_made.callback(opened.close)
        receive_embedded(opened, of_source, plugins)
        carried = _carries(opened, of_source, to)
        if carried:
            again = configured(source, "read", given | _CARRIED)
            fields = ("value",) if _is_raw(again) else None
            opened = _open_source(again, faults[0], fields, raw_keys=True)
            unless_made.callback(opened.close)
            receive_embedded(opened, again, plugins)
        letters = None
        if opened.decodes and opened.config["decode.on.error"] == "dead-letter":
            letters = open_target(
                opened.config,
                plugins=plugins,
                allow_class_paths=allow_class_paths,
                faults=faults[1],
            )
            unless_made.callback(letters.close)
        copy = Copy(
            opened,
            to,
            writer_id or f"copy/{opened.config.name}/{to.config.name}",
            checkpoints=checkpoints,
            carried=carried,
            letters=letters,
        )
        if partitions is None and _has_no_number(of_sink):
            partitions = len(opened.metadata.partitions()) or None
        copy.created = ensure_topic(
            of_sink, to, opened.schema, create=create, partitions=partitions
        )
        unless_made.pop_all()
    return copy


def _carries(source: Source, configured: Configured, sink: Sink) -> bool:
    """Whether both are streams of messages; what cannot be copied is refused."""
    messages = source.source_schema.equals(envelope_schema())
    into = sink.schema is not None and sink.schema.equals(envelope_schema())
    if messages and not into and _is_raw(configured):
        msg = "undecoded messages do not fit a stream of typed rows"
        key = f"stream.{sink.config.type}.decoder.class.name"
        remedy = f"name a decoder at {source.config.name!r}, or set {key}=raw here"
        raise ConfigError(msg, stream=sink.config.name, remedy=remedy)
    return messages and into


def _is_raw(configured: Configured) -> bool:
    return configured.decoder is None or configured.decoder.decoder is None


def _has_no_number(configured: Configured) -> bool:
    """Whether a topic is created by our words, and nobody wrote how many partitions."""
    setting = configured.config.settings.get("partitions")
    written = setting is not None and setting.origin != "default"
    return configured.backend.topic_admin is not None and not written


def _open_sink(configured: Configured, faults: Faults | None) -> Sink:
    if faults is None:
        return Sink(configured)
    return Sink(configured, clock=faults.clock, wrap=faults.around_producers)


def _open_source(
    configured: Configured,
    faults: Faults | None,
    fields: tuple[str, ...] | None = None,
    *,
    raw_keys: bool = False,
) -> Source:
    clock = wrap = None
    if faults is not None:
        clock, wrap = faults.clock, faults.around_consumers
    return Source(
        configured,
        fields=fields,
        clock=clock,
        wrap=wrap,
        aside=True,
        raw_keys=raw_keys,
    )
