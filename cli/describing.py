"""``describe``: what a stream type or a decoder is, and its options."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from streamfactory.cli.descriptions import (
    BackendDescription,
    DecoderDescription,
    JsonSchema,
    Role,
)
from streamfactory.cli.parameters import json_flag
from streamfactory.spi.hooks import BACKENDS, DECODERS
from streamfactory.wiring.config.configure import stream_options
from streamfactory.wiring.config.describing import (
    abilities,
    json_schema,
    option_rows,
    promises,
)
from streamfactory.wiring.options.vocabulary import FRAMEWORK_OPTIONS
from streamfactory.wiring.plugins.manager import PluginManager, default_manager

if TYPE_CHECKING:
    from streamfactory.cli.printing import Printer
    from streamfactory.spi import Backend
    from streamfactory.wiring.config.describing import Promise


@click.command("describe")
@click.argument("type_name", metavar="[TYPE]", required=False)
@click.option("--decoder", metavar="NAME", help="Describe this decoder instead.")
@click.option(
    "--schema", is_flag=True, help="Print JSON Schema of the properties of a stream."
)
@click.option("--all", "everything", is_flag=True, help="Include the bare words.")
@json_flag
@click.pass_obj
def describe_command(
    printer: Printer,
    *,
    type_name: str | None,
    decoder: str | None,
    schema: bool,
    everything: bool,
) -> None:
    """Describe a stream TYPE, or a decoder.

    Its abilities, its options, what it claims, and the delivery guarantee that follows
    at the most. Connects to nothing.
    """
    if (type_name is None) == (decoder is None):
        msg = "Give a stream TYPE, or --decoder NAME."
        raise click.UsageError(msg)
    manager = default_manager()
    if type_name is None:
        if schema or everything:
            msg = "--schema and --all are for stream types."
            raise click.UsageError(msg)
        printer.show(_describe_decoder(manager, str(decoder)))
        return
    backend = manager.backend(type_name.lower())
    if schema:
        printer.show(JsonSchema(json_schema(backend)))
    else:
        printer.show(_describe_backend(manager, backend, everything=everything))


def _describe_backend(
    manager: PluginManager, backend: Backend, *, everything: bool
) -> BackendDescription:

    prefix = f"stream.{backend.name}."
    own = {option.key for option in backend.options}
    options = sorted(
        stream_options(backend).values(), key=lambda option: option.key not in own
    )
    source, sink = promises(backend)
    return BackendDescription(
        backend.name,
        backend.doc,
        *_owner(manager, BACKENDS, backend.name),
        backend.yields.value,
        abilities(backend),
        _role(source),
        _role(sink),
        option_rows(options, prefix),
        option_rows(FRAMEWORK_OPTIONS.values()) if everything else [],
        [f"{prefix}{name}.prop." for name in sorted(backend.client_namespaces)],
    )


def _describe_decoder(manager: PluginManager, name: str) -> DecoderDescription:

    decoder = manager.decoder(name.lower())
    return DecoderDescription(
        decoder.name,
        decoder.doc,
        *_owner(manager, DECODERS, decoder.name),
        decoder.decoder is not None,
        decoder.decoder is not None and decoder.decoder.MESSAGE_BY_MESSAGE,
        decoder.encoder is not None,
        option_rows(decoder.options, "decoder.prop."),
    )


def _owner(manager: PluginManager, group: str, name: str) -> tuple[str, str]:
    """Distribution and version of the plug-in that bears a name."""
    infos = [
        info for info in manager.list(group) if info.name == name and info.error is None
    ]
    return infos[0].distribution, infos[0].version


def _role(promise: Promise | None) -> Role | None:
    if promise is None:
        return None
    visibility = promise.claims.epoch_visibility.value
    claims = {**asdict(promise.claims), "epoch_visibility": visibility}
    verdict = promise.verdict
    return Role(claims, str(verdict.guarantee), list(verdict.reasons))
