"""The texts of foreign errors in ours."""

from __future__ import annotations

import pytest

from streamfactory.spi.causes import first_line


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("one\ntwo"), "one"),
        (ValueError("\n  one\r\ntwo"), "one"),
        (ValueError(""), "ValueError"),
        (RecursionError(), "RecursionError"),
        (KeyError("x" * 600), "'" + "x" * 499),
    ],
)
def test_first_line_of_an_error_is_short_and_never_empty(
    error: Exception, line: str
) -> None:
    assert first_line(error) == line
