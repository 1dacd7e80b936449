"""Topics that are changed in the pages: shown first, made once, logged, with rights."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from tests.ui.conftest import PLACE, TOKEN, Client
from tests.ui.test_messages import offsets

from streamfactory.spi import TopicNotFound
from streamfactory.wiring.topics.admin import open_admin

if TYPE_CHECKING:
    from tests.ui.conftest import World

    from streamfactory.ui.access import Session


@dataclass
class Person:
    """A client that gave the token."""

    client: Client
    session: Session

    def post(self, **form: str) -> tuple[int, str]:
        answer = self.client.client.post(
            "/actions/topic",
            data={"csrf": self.session.csrf, **form},
            base_url=PLACE,
        )
        return answer.status_code, html.unescape(answer.get_data(as_text=True))

    def plan(self, kind: str, text: str, **form: str) -> str:
        """The key of a change that is shown."""
        status, shown = self.post(kind=kind, stream="clicks", text=text, **form)
        assert status == 200, shown
        found = re.search('name="change" value="([^"]+)"', shown)
        assert found is not None
        return found[1]

    def change(self, kind: str, text: str, **form: str) -> None:
        assert self.post(change=self.plan(kind, text, **form))[0] == 303


@pytest.fixture
def person(client: Client) -> Person:
    access = client.site.access
    secret = access.log_in(TOKEN)
    session = access.session(secret)
    assert secret is not None
    assert session is not None
    client.client.set_cookie("streamfactory-9816", secret, domain="localhost")
    return Person(client, session)


def bounds(small: World) -> dict[int, tuple[int, int | None]]:
    with open_admin(small.topic.options) as admin:
        return {
            one.partition.id: (one.earliest, one.latest) for one in admin.partitions()
        }


def test_a_message_is_shown_then_written_once_and_logged(
    small: World, person: Person, caplog: pytest.LogCaptureFixture
) -> None:
    key = person.plan("produce", '{"id": 77,\n "_partition": 1}')
    assert bounds(small)[1] == (0, 4)
    assert person.post(change=key)[0] == 303
    assert bounds(small)[1] == (0, 5)
    assert person.post(change=key)[0] == 400  # the form was sent twice
    assert bounds(small)[1] == (0, 5)
    assert "77" in person.client.text(
        "/message", stream="clicks", topic="clicks", partition=1, offset=4
    )
    said = [text for text in caplog.messages if text.startswith("topic of clicks")]
    assert said == [
        "topic of clicks: is being written to by hand: one message by 127.0.0.1",
        "topic of clicks: was written to by hand: one message by 127.0.0.1",
    ]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("produce", '{"id": "x"}'),
        ("produce", '{"other": 1}'),
        ("produce", "[1]"),
        ("produce", "{" * 5000),
        ("produce", ""),
        ("grow", "2"),
        ("grow", "-1"),
        ("grow", "9" * 40),
        ("truncate", "5"),  # beyond the end of a partition
        ("truncate", ""),
        ("truncate", "7=1"),
        ("create", ""),
        ("delete", ""),
        ("delete", "letters"),
        ("compact", ""),
    ],
)
def test_what_cannot_be_done_is_refused_before_it_is_shown(
    small: World, person: Person, kind: str, text: str
) -> None:
    before = bounds(small)
    status, shown = person.post(kind=kind, stream="clicks", text=text)
    assert status in (400, 404), shown
    assert "Code" in shown
    assert bounds(small) == before
    assert not person.session.changes


def test_topics_grow_are_truncated_deleted_and_created(
    small: World, person: Person
) -> None:
    person.change("grow", "3")
    assert set(bounds(small)) == {0, 1, 2}
    person.change("truncate", "0=5")
    assert bounds(small)[0] == (5, 10)
    person.change("delete", "clicks")
    with pytest.raises(TopicNotFound):
        bounds(small)
    person.change("create", "id bigint, name string|4")
    assert len(bounds(small)) == 4


def test_a_topic_that_changed_since_is_left_alone(small: World, person: Person) -> None:
    deletion = person.plan("delete", "clicks")
    person.change("delete", "clicks")
    person.change("create", "id bigint")
    status, shown = person.post(change=deletion)
    assert status == 409
    assert "has changed since it was shown" in shown
    assert bounds(small)


def test_nothing_is_changed_without_the_token_or_the_secret(
    small: World, client: Client
) -> None:
    before = bounds(small)
    form = {"kind": "delete", "stream": "clicks", "text": "clicks"}
    answer = client.client.post("/actions/topic", data=form, base_url=PLACE)
    assert answer.status_code == 401
    assert client.get("/actions/topic", stream="clicks").status_code == 401
    secret = client.site.access.log_in(TOKEN)
    assert secret is not None
    client.client.set_cookie("streamfactory-9816", secret, domain="localhost")
    answer = client.client.post("/actions/topic", data=form, base_url=PLACE)
    assert answer.status_code == 403
    assert bounds(small) == before
    assert "Produce a message" in client.text("/messages", stream="clicks")


def test_messages_without_a_session_have_no_actions(client: Client) -> None:
    text = client.text("/messages", stream="clicks")
    assert offsets(text)
    assert "Produce a message" not in text
