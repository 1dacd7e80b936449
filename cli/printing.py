"""Printers: the only part of the command line that writes."""

from __future__ import annotations

import json
import logging
import sys
from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, final

import click

from streamfactory.cli.wording import as_options
from streamfactory.spi.masking import mask_userinfo
from streamfactory.wiring.core.defects import with_code
from streamfactory.wiring.core.logs import JsonFormatter, log_line
from streamfactory.wiring.core.shown import all_of, masked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from streamfactory.spi.errors import StreamError

_LOGGER: Final = "streamfactory.cli"
_JSON: Final = JsonFormatter()
_TEXT: Final = logging.Formatter()


class Printer(ABC):
    """Prints results on standard output, and everything else on standard error."""

    def __init__(self) -> None:
        self.mask: Callable[[str], str] = str
        """Masks secrets in a text; commands set it once they have a configuration."""
        self.logs_json = False
        """Whether standard error has the lines of a log, as JSON: see `log_line`."""
        self._masks: list[Callable[[str], str]] = []

    def also_mask(self, mask: Callable[[str], str]) -> None:
        """Mask the secrets of one more configuration. Thread-safe."""
        self._masks.append(mask)

    @contextmanager
    def masking(self) -> Iterator[None]:
        """Forget the masks that were added in the block when it ends."""
        kept = len(self._masks)
        try:
            yield
        finally:
            del self._masks[kept:]

    def safe(self, text: str) -> str:
        """``text`` without secrets, nor credentials of any URL."""
        return mask_userinfo(all_of((self.mask, *self._masks))(text))

    @abstractmethod
    def show(self, document: Any, lines: Iterable[str]) -> None:
        """Print the result of a command.

        Args:
            document: What ``--json`` prints, as results of the library and plain
                values (see `plain`).
            lines: The same as text; not consumed with ``--json``.
        """

    def error(self, error: StreamError) -> None:
        """Print why a command failed."""
        if not self.logs_json:
            self._error(error)
            return
        fields = masked(error.to_dict(), as_options)
        fields["code"] = fields.pop("error")
        self._log(log_line("error", _LOGGER, as_options(str(error)), fields))

    def note(self, level: str, message: str, **fields: Any) -> None:
        """Print a fact about what the command does.

        Args:
            level: What it is: ``note``, ``warning``, ``statistics``, ``metrics``.
            message: The text.
            fields: For a log as JSON: what it concerns.
        """
        if not self.logs_json:
            self._note(level, message)
        elif level in ("warning", "error"):
            self._log(log_line(level, _LOGGER, message, fields))
        else:
            self._log(log_line("info", _LOGGER, message, {"kind": level, **fields}))

    def record(self, record: logging.LogRecord) -> None:
        """Print a record of the library's log, with its traceback if it has one."""
        if self.logs_json:
            self._log(_JSON.plain(record))
            return
        text = _TEXT.format(record)
        suppressed = getattr(record, "suppressed", 0)
        if suppressed:
            text += f" (repeated {suppressed} more times)"
        self._note(record.levelname.lower(), text)

    def progress(self, line: str) -> None:
        """Replace the line of progress; empty to remove it."""
        if not self.logs_json:
            self._progress(line)

    def _log(self, values: dict[str, Any]) -> None:
        text = json.dumps(masked(values, self.safe), ensure_ascii=False)
        click.echo(text, err=True)

    @abstractmethod
    def _error(self, error: StreamError) -> None: ...

    @abstractmethod
    def _note(self, level: str, message: str) -> None: ...

    @abstractmethod
    def _progress(self, line: str) -> None: ...


@final
class TextPrinter(Printer):
    """For people."""

    def show(self, document: Any, lines: Iterable[str]) -> None:  # noqa: ARG002
        """Print the lines."""
        # Masked together: there may be as many masks as lines, one of each stream.
        for line in masked([*lines], self.safe):
            click.echo(line)

    def _error(self, error: StreamError) -> None:
        self._note("error", as_options(with_code(error)))

    def _note(self, level: str, message: str) -> None:
        click.echo(self.safe(f"{level}: {message}"), err=True)

    def _progress(self, line: str) -> None:
        if sys.stderr.isatty():
            click.echo(f"\r\033[K{self.safe(line)[:79]}", nl=False, err=True)


@final
class JsonPrinter(Printer):
    """For programs: one document; on standard error one object per line."""

    def show(self, document: Any, lines: Iterable[str]) -> None:  # noqa: ARG002
        """Print the document."""
        # Imported here: it needs most results of the library, and texts need none.
        from streamfactory.wiring.core.plain import plain

        safe = masked(plain(document), self.safe)
        click.echo(json.dumps(safe, indent=2, ensure_ascii=False))

    def line(self, document: Any) -> None:
        """Print one of many documents, on one line of standard output."""
        from streamfactory.wiring.core.plain import plain

        click.echo(json.dumps(masked(plain(document), self.safe), ensure_ascii=False))
        sys.stdout.flush()

    def _error(self, error: StreamError) -> None:
        self._log(masked(error.to_dict(), as_options))

    def _note(self, level: str, message: str) -> None:
        self._log({"level": level, "message": message})

    def _progress(self, line: str) -> None:
        """Does nothing: programs read results."""
