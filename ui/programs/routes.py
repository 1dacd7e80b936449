"""The routes of ``/api/v1`` that the application has beside those for reading."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamfactory.ui.programs.controls import controls
from streamfactory.ui.programs.definitions import definitions
from streamfactory.ui.programs.letters import letters
from streamfactory.ui.programs.live import live
from streamfactory.ui.programs.positions import positions
from streamfactory.ui.programs.runs import runs
from streamfactory.ui.programs.topics import topics

if TYPE_CHECKING:
    from flask import Blueprint

CHANGES: Final[tuple[Blueprint, ...]] = (
    definitions,
    positions,
    topics,
    letters,
    runs,
    controls,
    live,
)
