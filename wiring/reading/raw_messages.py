"""Reads a stream without its decoder; infers schemas from samples."""

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
    from streamfactory.wiring.config.definition import StreamDefinition
    from streamfactory.wiring.config.settled import Configured
    from streamfactory.wiring.plugins.manager import PluginManager

_TURN: Final = 0.5
_BYTES: Final = 64 << 20
"""Approximate maximum of a sample."""
_DECODING: Final = ("schema", "payload.compression", "payload.max.bytes")


def as_raw(definition: StreamDefinition) -> StreamDefinition:
    """Return the definition of the same stream without decoding."""
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
    allow_class_paths: bool,
) -> pa.Schema:
    """Infer a schema from the first messages of a stream, by its decoder.

    Args:
        definition: Definition of the stream.
        plugins: Finds types.
        sample: Maximum number of messages.
        allow_class_paths: Whether the configuration may name Python objects.

    Raises:
        Unsupported: misuse; the decoder cannot infer.
        SchemaUnknown: config; there is no message, or none can be decoded.
        ConfigError: config; the stream has no decoder.
        StreamError: Raised by the source.
    """

    def configured(one: StreamDefinition) -> Configured:
        return load(one, "read", allow_class_paths=allow_class_paths, plugins=plugins)

    own = configured(definition)
    if own.decoder is None or own.decoder.decoder is None:
        msg = "a schema cannot be inferred: this stream has no decoder"
        raise ConfigError(msg, stream=own.config.name, remedy="omit --infer")
    codec, most = own.config["payload.compression"], own.config["payload.max.bytes"]
    patience = own.config["fetch.timeout.millis"] / 1000
    with closing(Source(configured(as_raw(definition)), fields=("value",))) as source:
        values = _sample(source, sample, patience)
    if codec != "none":
        values, _ = Payloads(codec, most).open(values)
    values = values.drop_null()
    if not len(values):
        msg = "a schema cannot be inferred: the stream has no message"
        raise SchemaUnknown(msg, stream=own.config.name)
    return own.decoder.decoder.infer(values, own.config.decoder_options())


def _sample(source: Source, most: int, patience: float) -> pa.Array:
    """Return the first values of all partitions, in turn."""
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
