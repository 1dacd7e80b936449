"""Payloads of commit messages, which may come from another program."""

from __future__ import annotations

from typing import Any

import pytest

from streamfactory.arrowlog.decoding import list_of, members_of, payload_of, text, whole
from streamfactory.spi import CommitMessage, CorruptData, WriteContext

FORMAT = members_of({"attempt": text, "files": list_of(whole())})


def message(payload: Any) -> CommitMessage:
    return CommitMessage(WriteContext("w", 3, 7, "a"), payload=payload)


def test_a_payload_of_the_format_is_returned() -> None:
    given = {"attempt": "a", "files": [1, 2]}
    assert payload_of(message(given), FORMAT) == given


@pytest.mark.parametrize(
    ("payload", "wrong"),
    [
        (None, "the value is None"),
        ({"attempt": "a"}, "files is missing"),
        ({"attempt": "a", "files": [1, "b"]}, r"files\[1\] is 'b'"),
        ({"attempt": "a", "files": [], "more": 1}, "'more' is not a member"),
    ],
)
def test_another_payload_is_corrupt(payload: Any, wrong: str) -> None:
    found = f"the commit message of task 7: {wrong}"
    with pytest.raises(CorruptData, match=found) as caught:
        payload_of(message(payload), FORMAT)
    assert caught.value.remedy == "abort the epoch, and write it again"
