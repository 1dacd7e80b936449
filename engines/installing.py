"""Importing an engine when it is first used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from streamfactory.spi import NotInstalled


def load(engine: str) -> Any:
    """The module of an engine, whose name is also the name of our extra.

    Raises:
        NotInstalled: plugin; names the command that installs it.
    """
    try:
        return import_module(engine)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != engine:
            raise  # installed, but broken: installing it is not the remedy
        msg = (
            f"engines.{engine} requires the package {engine!r}, which is not installed"
        )
        remedy = f"run: pip install 'streamfactory[{engine}]'"
        raise NotInstalled(msg, remedy=remedy) from error
