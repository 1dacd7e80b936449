"""Positions as options: offsets, times, periods, earliest and latest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from streamfactory.spi import PositionRefused
from streamfactory.wiring.reading.position_texts import parse_marks, parse_start

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.wiring.reading.position_arguments import Marks
    from streamfactory.wiring.reading.starts import Start


def read_start(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> Start | None:
    """A click callback: earliest, latest, a time, a period or a position."""
    if text is None:
        return None
    try:
        return parse_start(text)
    except PositionRefused as error:
        msg = f"{error.what}."
        raise click.BadParameter(msg, context, parameter) from error
    except ValueError as error:
        msg = f"{text!r} {error}, nor a position."
        raise click.BadParameter(msg, context, parameter) from error


def read_marks(
    context: click.Context, parameter: click.Parameter, texts: Sequence[str]
) -> Marks | None:
    """A click callback: one place for all partitions, or ``PARTITION=`` per place."""
    if not texts:
        return None
    try:
        return parse_marks(texts)
    except PositionRefused as error:
        msg = f"{error.what}."
        raise click.BadParameter(msg, context, parameter) from error
    except ValueError as error:
        msg = f"{error}."
        raise click.BadParameter(msg, context, parameter) from error
