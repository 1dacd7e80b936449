"""The options ``spool.*``: those of the log's place under a prefix, and three more."""

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

    from streamfactory.spi import Problem, Setting

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
        "Folder, or URL of an object store, of the spool: a receiver stores there what "
        "a stream that cannot be read again delivers, and readers read it there by "
        "offset.",
        LOCATION,
        applies=READ,
        example="/var/lib/spool",
    ),
    Option(
        "spool.receiver",
        "Who receives into the spool: embedded, the process that opens the stream; "
        "daemon, the command `streamfactory spool`.",
        choice("embedded", "daemon"),
        default="daemon",
        applies=READ,
    ),
    Option(
        "spool.full.bytes",
        "Bytes that a partition of the spool holds at the most, as rows are in memory; "
        "without a bound, when not set.",
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
    """Options of a spool that were given where there is none.

    Args:
        config: Of the stream.
    """
    if PATH in config:
        return
    for key in config:
        if key.startswith(PREFIX) and config.given(key):
            what = f"has no effect without {PATH}"
            yield config.problem(key, what, level="warning")


def store_config(config: StreamConfig) -> StreamConfig:
    """The configuration of the spool's log: ``spool.path`` becomes ``path``.

    Args:
        config: Of the stream, with ``spool.path``.
    """
    settings: dict[str, Setting] = {
        key.removeprefix(PREFIX): replace(setting, key=key.removeprefix(PREFIX))
        for key, setting in config.settings.items()
        if key.startswith(PREFIX)
    }
    return StreamConfig(config.name, config.type, settings)


def transport_options(config: StreamConfig) -> StreamConfig:
    """A configuration without what is for the readers of the spool alone.

    A guarantee and a start are left to them. After a loss the receiver goes on at what
    the transport still has, and records the loss.

    Args:
        config: Of the stream, with ``spool.path``.
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
    """The configuration by which a receiver reads: messages are left as they are."""
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
