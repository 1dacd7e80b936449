"""A stream's messages as they are, whatever decoder it names; and samples of them."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from streamfactory.spi import ConfigError, SchemaUnknown
from streamfactory.wiring.config.loading import load
from streamfactory.wiring.core.clock import Clock
from streamfactory.wiring.decoding.payloads import Payloads
from streamfactory.wiring.reading.following import read_from
from streamfactory.wiring.reading.source import Source

if TYPE_CHECKING:
    from streamfactory.wiring.config.configure import Configured
    from streamfactory.wiring.config.definition import StreamDefinition
    from streamfactory.wiring.plugins.manager import PluginManager

_TURN: Final = 0.5
_BYTES: Final = 64 << 20
"""That a sample has at the most, about."""
_DECODING: Final = ("schema", "payload.compression", "payload.max.bytes")


def as_raw(definition: StreamDefinition) -> StreamDefinition:
    """The same stream with its messages left as they are."""
    kept, kind = [], ""
    for one in definition.properties:
        parts = one.key.lower().split(".")
        if parts[0] == "stream" and "decoder" in parts[2:4]:
            kind = parts[1]
        elif one.key.lower() not in _DECODING:
            kept.append(one)
    left = replace(definition, properties=tuple(kept))
    if not kind:
        return left
    return left.with_overrides({f"stream.{kind}.decoder.class.name": "raw"})


def infer_schema(
    definition: StreamDefinition,
    plugins: PluginManager,
    *,
    sample: int,
    allow_class_paths: bool = False,
) -> pa.Schema:
    """A schema that fits the first messages of a stream, as its decoder sees them.

    Args:
        definition: Of the stream.
        plugins: Where types are found.
        sample: How many messages are looked at, at the most.
        allow_class_paths: Whether the configuration may name Python objects.

    Raises:
        Unsupported: misuse; the decoder cannot infer.
        SchemaUnknown: config; there is no message, or none that is good.
        ConfigError: config; the stream decodes nothing.
        StreamError: As the source raises.
    """

    def configured(one: StreamDefinition) -> Configured:
        return load(one, "read", allow_class_paths=allow_class_paths, plugins=plugins)

    own = configured(definition)
    if own.decoder is None or own.decoder.decoder is None:
        msg = "there is nothing to infer: no decoder makes rows of messages here"
        raise ConfigError(msg, stream=own.config.name, remedy="leave --infer out")
    codec, most = own.config["payload.compression"], own.config["payload.max.bytes"]
    patience = own.config["fetch.timeout.millis"] / 1000
    with closing(Source(configured(as_raw(definition)), fields=("value",))) as source:
        values = _sample(source, sample, patience)
    if codec != "none":
        values, _ = Payloads(codec, most).open(values)
    values = values.drop_null()
    if not len(values):
        msg = "there is no message to look at"
        raise SchemaUnknown(msg, stream=own.config.name)
    return own.decoder.decoder.infer(values, own.config.decoder_options())


def _sample(source: Source, most: int, patience: float) -> pa.Array:
    """The first values of all partitions, in turn."""
    clock, found, size = Clock(), [pa.array([], pa.binary())], 0
    count = 0
    until = clock.now() + patience
    rotation = read_from(source, start="earliest", default="earliest", follow=False)
    with closing(rotation):
        while not rotation.finished and count < most and size < _BYTES:
            batch = rotation.next_batch(min(_TURN, max(0.0, until - clock.now())))
            if batch is not None and batch.num_rows:
                found.append(batch.rows.column("value").slice(0, most - count))
                count += len(found[-1])
                size += batch.size
            elif clock.now() >= until:
                break
    return pa.concat_arrays(found)
