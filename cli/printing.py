"""Printers: the only part of the command line that writes."""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, final

import click

from streamfactory.spi.masking import mask_userinfo

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.cli.results import Result
    from streamfactory.spi.errors import StreamError


class Printer(ABC):
    """Shows answers on standard output, and everything else on standard error."""

    def __init__(self) -> None:
        self.mask: Callable[[str], str] = str
        """Takes secrets out of a text; commands set it once they have a
        configuration."""

    def safe(self, text: str) -> str:
        """``text`` without secrets, nor credentials of any URL."""
        return mask_userinfo(self.mask(text))

    @abstractmethod
    def show(self, result: Result) -> None:
        """Print what a command answers."""

    @abstractmethod
    def error(self, error: StreamError) -> None:
        """Print why a command failed."""

    @abstractmethod
    def note(self, level: str, message: str) -> None:
        """Print a line of the log."""

    @abstractmethod
    def progress(self, line: str) -> None:
        """Show what goes on, in place of the line before; empty to wipe it."""


@final
class TextPrinter(Printer):
    """For people."""

    def show(self, result: Result) -> None:
        """Print the answer."""
        for line in result.lines():
            click.echo(self.safe(line))

    def error(self, error: StreamError) -> None:
        """Print the error."""
        self.note("error", str(error))

    def note(self, level: str, message: str) -> None:
        """Print the line."""
        click.echo(self.safe(f"{level}: {message}"), err=True)

    def progress(self, line: str) -> None:
        """Show the line where there is a terminal to show it on."""
        if sys.stderr.isatty():
            click.echo(f"\r\033[K{self.safe(line)[:79]}", nl=False, err=True)


@final
class JsonPrinter(Printer):
    """For programs: one document; on standard error one object a line."""

    def show(self, result: Result) -> None:
        """Print the answer."""
        plain = self._masked(result.plain())
        click.echo(json.dumps(plain, indent=2, ensure_ascii=False))

    def error(self, error: StreamError) -> None:
        """Print the error."""
        self._line(error.to_dict())

    def note(self, level: str, message: str) -> None:
        """Print the line."""
        self._line({"level": level, "message": message})

    def progress(self, line: str) -> None:
        """Show nothing: programs read results."""

    def _line(self, values: dict[str, Any]) -> None:
        text = json.dumps(self._masked(values), ensure_ascii=False)
        click.echo(text, err=True)

    def _masked(self, value: Any) -> Any:
        """Values without secrets; keys are ours, and stay."""
        if isinstance(value, str):
            return self.safe(value)
        if isinstance(value, dict):
            return {key: self._masked(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self._masked(inner) for inner in value]
        return value
