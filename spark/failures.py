"""Translation of errors for Spark users: the code, the cause and the remedy.

A Python worker can only pass text to Spark, and Spark prints causes before the message.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from streamfactory.spi import StreamError
from streamfactory.wiring.core.defects import with_code

if TYPE_CHECKING:
    from collections.abc import Iterator


_WORDS: Final = re.compile(
    r"StreamFactoryError: (\[[a-z_]+\] .*?)\s*(?:^\s*SQLSTATE|^\s+at |^===|\Z)",
    re.DOTALL | re.MULTILINE,
)
"""Our message within Spark's text, before its SQLSTATE, plan or Java trace."""

_CODE: Final = re.compile(r"\[[A-Z_.0-9]+\]")
_SAID: Final = re.compile(
    r"(?:\[[A-Z_.0-9]+\] )?(.*?)"
    r"(?: ?SQLSTATE:|;\n|\n\n|\n=|\n\s+at |\nDriver stacktrace|\Z)",
    re.DOTALL,
)
"""The message after a code, before SQLSTATE and plan."""
_PLACE: Final = re.compile(r"\bline (\d+),? pos (\d+)")
_ENDED: Final = re.compile(
    r"\A\[STREAM_FAILED\].*?terminated with exception: ", re.DOTALL
)
_CAUSE: Final = re.compile(r"^Caused by: (.*)", re.MULTILINE)
_LONGEST: Final = 500
"""Characters of Spark's message that are shown: Java traces have thousands."""
_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


class StreamFactoryError(RuntimeError):
    """A streamfactory error, with its stable code in brackets."""


@contextmanager
def translate_errors() -> Iterator[None]:
    """Translate `StreamError` to text with its code, without causes."""
    try:
        yield
    except StreamError as error:
        raise StreamFactoryError(with_code(error)) from None


def reason(error: BaseException) -> str | None:
    """Our message within Spark's text of a failure; None if it is not ours.

    The text of a streaming query continues with the state of the query.
    """
    found = _WORDS.findall(str(error))
    return found[-1] if found else None


def words_of(error: Exception) -> str:
    """Spark's message in one line, without code and plan."""
    text = str(error).strip()
    found = _SAID.match(text)
    words = _clip(" ".join((found[1] if found else text).split()).rstrip(".;: "))
    causes = _CAUSE.findall(text)
    if causes and causes[-1].strip() not in words:
        words += f", caused by {_clip(causes[-1].strip())}"
    place = _PLACE.search(text)
    if place is None:
        return words
    return f"{words} (line {place[1]} of the SQL, column {int(place[2]) + 1})"


def _clip(words: str) -> str:
    return words if len(words) <= _LONGEST else f"{words[: _LONGEST - 3]}..."


def describe_failure(error: Exception) -> str:
    """Why a query failed: our message if it is ours, else Spark's with its code.

    Args:
        error: The error of the query, or of a write within it.
    """
    ours = with_code(error) if isinstance(error, StreamError) else reason(error)
    if ours is not None:
        return ours
    if not hasattr(error, "getCondition"):
        return f"{type(error).__name__}: {words_of(error)}"
    text = _ENDED.sub("", str(error).strip())
    code = _CODE.match(text)
    words = words_of(Exception(text))
    return words if code is None else f"{code[0]} {words}"


@contextmanager
def unlogged() -> Iterator[None]:
    """Suppress PySpark's log of SQL errors, which we report."""
    from pyspark.logger import PySparkLogger

    loggers = [PySparkLogger.getLogger(name) for name in _LOGGERS]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled
