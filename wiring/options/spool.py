"""The options ``spool.*``: those of the log with a prefix, and three more."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from streamfactory.arrowlog.disk.options import (
    LOCATION,
    MODE_OPTIONS,
    STORAGE_OPTIONS,
    WRITING_OPTIONS,
)
from streamfactory.arrowlog.options import LOG_OPTIONS
from streamfactory.spi import SIZE, Option, StreamConfig, choice
from streamfactory.wiring.options.shared import READ

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.spi import Problem
    from streamfactory.spi.config import Setting

PREFIX: Final = "spool."
PATH: Final = "spool.path"

_INHERITED: Final = (
    *(option for option in LOG_OPTIONS if option.key.startswith("retention.")),
    *WRITING_OPTIONS,
    *MODE_OPTIONS,
    *STORAGE_OPTIONS,
)

SPOOL_OPTIONS: Final = (
    Option(
        PATH,
        "Folder, or URL of an object store, of the spool: a receiver stores messages "
        "there that cannot be read from the source again, and readers read them by "
        "offset.",
        LOCATION,
        applies=READ,
        example="/var/lib/spool",
    ),
    Option(
        "spool.receiver",
        "Where the receiver runs: embedded, in the process that opens the stream; "
        "daemon, the command `streamfactory spool`.",
        choice("embedded", "daemon"),
        default="daemon",
        applies=READ,
    ),
    Option(
        "spool.full.bytes",
        "Maximum bytes of a partition of the spool, as rows are in memory; unbounded "
        "if not set.",
        SIZE,
        minimum=1,
        applies=READ,
    ),
    Option(
        "spool.full",
        "When spool.full.bytes is reached: block, receive no more until retention has "
        "released rows; drop-oldest, release the oldest rows; fail, end the receiver.",
        choice("block", "drop-oldest", "fail"),
        default="block",
        applies=READ,
    ),
    *(
        replace(
            option,
            key=PREFIX + option.key,
            applies=READ,
            aliases=(),
            former=tuple(PREFIX + key for key in option.former),
        )
        for option in _INHERITED
    ),
)


def spool_strays(config: StreamConfig) -> Iterator[Problem]:
    """Yield problems with spool options of a stream without a spool.

    Args:
        config: Configuration of the stream.
    """
    if PATH in config:
        return
    for key in config:
        if key.startswith(PREFIX) and config.given(key):
            what = f"has no effect without {PATH}"
            yield config.problem(key, what, level="warning")


def store_config(config: StreamConfig) -> StreamConfig:
    """Return the configuration of the spool's log: ``spool.path`` becomes ``path``.

    Args:
        config: Configuration of the stream, with ``spool.path``.
    """
    settings: dict[str, Setting] = {
        key.removeprefix(PREFIX): replace(setting, key=key.removeprefix(PREFIX))
        for key, setting in config.settings.items()
        if key.startswith(PREFIX)
    }
    return StreamConfig(config.name, config.type, settings)


def transport_options(config: StreamConfig) -> StreamConfig:
    """Return the configuration without options that apply to readers of the spool only.

    These are the guarantee and the start. After a loss the receiver continues with the
    messages that the transport still has, and records the loss.

    Args:
        config: Configuration of the stream, with ``spool.path``.
    """
    left_out = ("guarantee", "assign", "consumer.type", "group.id", "schema.contract")
    settings = {
        key: setting
        for key, setting in config.settings.items()
        if not key.startswith((PREFIX, "starting", "ending")) and key not in left_out
    }
    forced = {"out.of.range": "earliest", "consumer.type": "lowlevel"}
    for key, value in forced.items():
        settings[key] = replace(
            config.settings[key], text=value, value=value, origin="default"
        )
    return replace(config, settings=settings)


def transport_config(config: StreamConfig) -> StreamConfig:
    """Return the configuration of a receiver, which does not decode messages."""
    found = transport_options(config)
    settings = {
        key: setting
        for key, setting in found.settings.items()
        if not key.startswith("key.decoder.")
    }
    return replace(
        found,
        settings=settings,
        decoder=None if config.decoder is None else "raw",
        decoder_settings={},
        warnings=(),
    )
