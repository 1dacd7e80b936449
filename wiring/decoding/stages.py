"""Makes the decoding stages of a stream, of its decoders and options; for `Source`."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, final

from streamfactory.spi import SCHEMA, StreamError
from streamfactory.spi.ddl import parse_ddl
from streamfactory.wiring.core.guard import log
from streamfactory.wiring.decoding.deadletters import Origin
from streamfactory.wiring.decoding.keys import KeyStage, key_options
from streamfactory.wiring.decoding.payloads import Payloads
from streamfactory.wiring.decoding.stage import DecodePolicy, DecodeStage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamfactory.spi import Decoder, MessageDecoder, Partition, StreamConfig
    from streamfactory.wiring.config.settled import Configured


@final
class StageFactory:
    """Makes the decoding stages of one stream. Thread-safe.

    Args:
        configured: The configuration of the stream and its plug-ins.
        aside: Whether dead letters are collected apart from the rows; None: they are
            among the rows, but dropped if a group would write them.
        raw_keys: Whether ``_key`` is not decoded, although a key decoder is set.
    """

    def __init__(
        self, configured: Configured, *, aside: bool | None, raw_keys: bool
    ) -> None:
        self._config = configured.config
        self.decoder = configured.decoder
        """The descriptor of the decoder; None if none is configured."""
        self._key_decoder = None
        if self._config.get("key.decoder.columns") or not raw_keys:
            self._key_decoder = configured.key_decoder
        self.origin = Origin.of(self._config, self.decoder)
        """The origin of this stream's dead letters."""
        drop = aside is None and self.decodes and for_group(self._config)
        if drop:
            what = "undecodable messages are dropped here: "
            what += "only copy and groups write dead letters"
            log.warning("stream %r: " + what, self._config.name)
        self.policy = DecodePolicy.of(
            self._config, self.origin if aside else None, drop=drop
        )

    @property
    def decodes(self) -> bool:
        """Whether messages are decoded."""
        return self.decoder is not None and self.decoder.decoder is not None

    def create(
        self, partition: Partition, fields: Sequence[str] | None
    ) -> DecodeStage | None:
        """Create the stage of a partition; None if messages are not decoded.

        Args:
            partition: The partition.
            fields: Columns to return; None means all.

        Returns:
            A stage that the caller closes.
        """
        try:
            return self._create(partition, fields)
        except StreamError as error:
            error.at(stream=self._config.name)
            raise

    def _create(
        self, partition: Partition, fields: Sequence[str] | None
    ) -> DecodeStage | None:
        descriptor, config = self.decoder, self._config
        if descriptor is None or descriptor.decoder is None:
            return None
        declared = config.settings.get("schema")
        options = config.decoder_options()
        codec, most = config["payload.compression"], config["payload.max.bytes"]
        with ExitStack() as unless_made:
            keys = None
            if self._key_decoder is not None:
                keys = self._keys(self._key_decoder)
                unless_made.callback(keys.close)
            if declared is not None:
                options |= _handed_over(descriptor, options, declared.text)
            decoder = self._make(descriptor, options)
            unless_made.callback(decoder.close)
            stage = DecodeStage(
                decoder,
                self.policy,
                partition,
                fields,
                declared=None if declared is None else parse_ddl(declared.value),
                keys=keys,
                payloads=None if codec == "none" else Payloads(codec, most),
            )
            unless_made.pop_all()
        return stage

    def _keys(self, descriptor: Decoder) -> KeyStage:
        config = self._config
        options = key_options(descriptor, config)
        wanted = config["key.decoder.columns"]
        prefix = config["key.decoder.columns.prefix"] if wanted else None
        decoder = self._make(descriptor, options)
        try:
            return KeyStage(decoder, prefix)
        except BaseException:
            decoder.close()
            raise

    def _make(self, descriptor: Decoder, options: dict[str, Any]) -> MessageDecoder:
        assert descriptor.decoder is not None
        return descriptor.decoder(options, self._config.get("topic.name", ""))


def for_group(config: StreamConfig) -> bool:
    """Whether a group writes the dead letters of a stream to another stream."""
    return (
        config["consumer.type"] == "highlevel"
        and config["decode.on.error"] == "dead-letter"
        and "dead.letter.stream" in config
    )


def _handed_over(
    decoder: Decoder, given: Mapping[str, Any], schema: str
) -> dict[str, Any]:
    """Pass the stream's ``schema`` to a decoder without schema that accepts the form.

    A decoder with another form of schema (Avro) keeps its own.
    """
    for option in decoder.options:
        value = given.get(option.key)
        unset = None if option.default is None else option.parse(option.default)
        if option.key.startswith("schema") and value and value != unset:
            return {}
    for option in decoder.options:
        if option.key == "schema" and (option.type is SCHEMA or option.validator):
            with suppress(ValueError):
                return {"schema": option.parse(schema)}
    return {}
