"""Command lines in this process, and what they come to."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamfactory.cli.main import run

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


@dataclass(frozen=True)
class Outcome:
    """What one command line came to."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The document on standard output."""
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        """The last object on standard error."""
        return json.loads(self.err.splitlines()[-1])


def command_of(
    capsys: pytest.CaptureFixture[str], *words: str
) -> Callable[..., Outcome]:
    """Runs a command line that begins with some words."""

    def command(*arguments: object) -> Outcome:
        capsys.readouterr()
        status = run([*words, *(str(argument) for argument in arguments)])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.out
        return Outcome(int(status), captured.out, captured.err)

    return command
