"""The table of states in the docstring is what the transition function does."""

import inspect

import pytest

from streamfactory.push.reading_state import ReadingEvent, ReadingState, after
from streamfactory.spi import ClosedError, MisuseError

EVENTS = [ReadingEvent.SCAN, ReadingEvent.CLAIM, ReadingEvent.FINISH]


def documented() -> dict[tuple[ReadingState, ReadingEvent], str]:
    rows = [line.split() for line in (inspect.getdoc(ReadingState) or "").splitlines()]
    states = ReadingState.__members__
    named = [row for row in rows if row and row[0] in states]
    return {
        (states[row[0]], event): word
        for row in named
        for event, word in zip(EVENTS, row[1:], strict=True)
    }


@pytest.mark.parametrize("state", ReadingState)
@pytest.mark.parametrize("event", EVENTS)
def test_each_event_leads_where_the_table_says(
    state: ReadingState, event: ReadingEvent
) -> None:
    word = documented()[state, event]
    if word == "refused":
        error = ClosedError if state is ReadingState.CLOSED else MisuseError
        with pytest.raises(error):
            after(state, event)
    else:
        assert after(state, event) is ReadingState[word]
