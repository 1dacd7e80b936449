"""Rows for those who may not see their values: masked at every door, or not at all."""

from __future__ import annotations

import html
import io
import json
import time
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.checkpoints.conftest import Topic
from tests.ui.conftest import PLACE, Client, World
from tests.ui.test_rights import READ, VALUES, log_in, people, token_of, users_file

from streamfactory.ui import feeds
from streamfactory.wiring.config.configure import inspect
from streamfactory.wiring.config.definition import Property, StreamDefinition
from streamfactory.wiring.options.masks import MASKS
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EMAIL, CARD, PHONE, TOKEN = (
    "planted@example.org",
    "4000111122223333",
    "+49123456",
    "tok-77",
)
SECRETS: Final = (EMAIL, CARD, PHONE, TOKEN, "planted", "40001111")
MASKED: Final = (
    "email=hash, card.number=hide, phone=cut:3, note.auth.token=hide, all.card=hide"
)
ROW: Final[dict[str, Any]] = {
    "id": 1,
    "email": EMAIL,
    "card": {"number": CARD, "kind": "visa"},
    "phone": PHONE,
    "note": json.dumps({"AUTH": [{"token": TOKEN}], "ok": 1}),
    "all": [{"card": CARD}, {"card": None}],
}


@pytest.fixture
def buyers(
    small: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Client]:
    """The stream buyers with masks; reader may read, viewer see values."""
    monkeypatch.setenv("MASK_KEY", "a-key-of-hashes-0123456789")
    made = Topic(small.folder / "topics", "buyers")
    other = {**ROW, "id": 2, "email": None, "note": f"no JSON {TOKEN}", "all": []}
    with open_sink(made.options) as sink:
        rows = [{**one, "_partition": 0} for one in (ROW, other)]
        sink.put(pa.Table.from_pylist(rows))
    made.options |= {"mask.columns": MASKED, "mask.key": "${env:MASK_KEY}"}
    made.file(small.catalogue)
    rights = {"*": {READ: ["reader"], VALUES: ["viewer"]}}
    with people(users_file(tmp_path / "users.toml", rights)) as client:
        yield client


PAGES: Final = (
    "/messages?stream=buyers",
    "/messages?stream=buyers&as=raw",
    "/message?stream=buyers&topic=buyers&partition=0&offset=0",
    "/message?stream=buyers&topic=buyers&partition=0&offset=1",
    "/download?stream=buyers&format=json&from=earliest&direction=forward",
    "/download?stream=buyers&format=csv&from=earliest&direction=forward",
    "/api/v1/streams/buyers/rows",
    "/api/v1/streams/buyers/rows?as=raw",
)


def test_values_are_masked_at_each_door(buyers: Client) -> None:
    log_in(buyers, "viewer")
    for path in PAGES:
        if "as=raw" not in path and "offset=1" not in path:
            assert EMAIL in html.unescape(buyers.text(path)), path
    log_in(buyers, "reader")
    for path in PAGES:
        found = buyers.get(path)
        assert found.status_code == 200, (path, found.get_data(as_text=True))
        for secret in SECRETS:
            assert secret not in html.unescape(found.get_data(as_text=True)), path
    # And in Arrow and Parquet.
    headers = {"Accept": "application/vnd.apache.arrow.stream"}
    found = buyers.client.get(
        "/api/v1/streams/buyers/rows", base_url=PLACE, headers=headers
    )
    table = pa.ipc.open_stream(found.get_data()).read_all()
    path = "/download?stream=buyers&format=parquet&from=earliest&direction=forward"
    stored = parquet.read_table(io.BytesIO(buyers.get(path).get_data()))
    for one in (table, stored):
        text = json.dumps(one.to_pylist(), default=str)
        assert one.num_rows == 2
        assert not any(secret in text for secret in SECRETS)


def test_each_mask_does_what_it_says(buyers: Client) -> None:
    log_in(buyers, "reader")
    found = buyers.get("/api/v1/streams/buyers/rows").get_json()["items"]
    first, second = found
    assert first["id"] == 1
    assert len(first["email"]) == 24
    assert second["email"] is None
    assert json.loads(first["card"]) == {"number": "***", "kind": "visa"}
    assert first["phone"] == "+49…"
    assert json.loads(first["note"]) == {"AUTH": [{"token": "***"}], "ok": 1}
    assert second["note"] == "***"
    assert json.loads(first["all"]) == [{"card": "***"}, {"card": "***"}]


def test_a_search_tells_nothing_about_masked_values(buyers: Client) -> None:
    log_in(buyers, "reader")
    rows = "/api/v1/streams/buyers/rows"
    assert len(buyers.get(rows, where="id = 2").get_json()["items"]) == 1
    for where in (
        f"email = '{EMAIL}'",
        "EMAIL IS NULL",
        "card.number LIKE '4%'",
        "card.kind = 'visa'",
        "length(phone) > 3",
        "note IS NOT NULL AND id = 1",
        '"all" IS NULL',
        "columns('e.*') = 'x'",
        "_key IS NULL",
        "key IS NULL",
        "struct_pack(rows) IS NULL",
    ):
        found = buyers.get(rows, where=where)
        assert found.status_code == 400, where
    where = "email IS NULL"  # at the other doors
    for path, more in (("/messages", {}), ("/download", {"format": "csv"})):
        found = buyers.get(path, stream="buyers", where=where, **more)
        assert found.status_code == 400, path
    refused = buyers.get(rows, where="email IS NULL").get_json()
    assert "masked columns" in refused["remedy"]


def test_views_of_users_with_and_without_values_are_apart(
    buyers: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Look-ups and readers of live views are shared by those with one right only."""
    monkeypatch.setattr(feeds, "_TURN", 0.01)
    path = "/messages?stream=buyers"
    for user in ("viewer", "reader", "viewer"):
        log_in(buyers, user)
        assert (EMAIL in buyers.text(path)) is (user == "viewer")
        buyers.get("/events", stream="buyers")
    readers = buyers.site.feeds.open()
    assert sorted(one._query.masked for one in readers) == [False, True]


def test_the_live_view_is_masked(buyers: Client, small: World) -> None:
    log_in(buyers, "reader")
    events = "/events?stream=buyers"
    assert buyers.get(events).status_code == 200
    (reader,) = buyers.site.feeds.open()
    assert reader.following.wait(30)
    with open_sink(Topic(small.folder / "topics", "buyers").options) as sink:
        sink.put(pa.Table.from_pylist([{**ROW, "id": 77, "_partition": 0}]))
    deadline = time.monotonic() + 30
    while "data:" not in (text := buyers.text(events)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert '"77"' in text
    assert not any(secret in text for secret in SECRETS)


def test_without_masks_there_are_no_rows(buyers: Client) -> None:
    log_in(buyers, "reader")
    for path in PAGES:
        found = buyers.get(path.replace("buyers", "clicks"))
        assert found.status_code == 403
    headers = {"Authorization": f"Bearer {token_of('reader')}"}
    found = buyers.client.get(
        "/api/v1/streams/clicks/rows", base_url=PLACE, headers=headers
    )
    assert found.get_json()["right"] == VALUES


def test_dead_letters_hide_messages_and_reasons(world: World, tmp_path: Path) -> None:
    world.letters({"bad": CARD.encode()}, f"cannot read {EMAIL}")
    file = next(one for one in world.catalogue.iterdir() if "letters" in one.name)
    body = json.loads(file.read_text())
    body["properties"]["mask.columns"] = "decoder=show"
    file.write_text(json.dumps(body))
    rights = {"*": {READ: ["reader"]}}
    with people(users_file(tmp_path / "users.toml", rights)) as client:
        log_in(client, "reader")
        assert client.get("/dead-letters", stream="letters").status_code == 403
        text = client.text("/messages", stream="letters")
        assert "bad" in text
        assert CARD not in text
        assert EMAIL not in text


@pytest.mark.parametrize(
    ("masks", "problem"),
    [
        ("nothing=hide", "the rows have no such column"),
        ("card.numbers=hide", "no member is 'numbers'"),
        ("all.cards=hide", "no member is 'cards'"),
        ("card.kind=show", "only whole columns can be shown"),
        ("email=hash", "requires mask.key"),
        ("email", "no mask"),
    ],
)
def test_masks_that_do_not_fit_show_nothing(
    buyers: Client, small: World, masks: str, problem: str
) -> None:
    file = next(one for one in small.catalogue.iterdir() if "buyers" in one.name)
    body = json.loads(file.read_text())
    body["properties"]["mask.columns"] = masks
    del body["properties"]["mask.key"]
    file.write_text(json.dumps(body))
    log_in(buyers, "reader")
    text = html.unescape(buyers.text("/messages?stream=buyers"))
    assert problem in text
    assert not any(secret in text for secret in SECRETS)


def test_a_profile_may_add_masks(
    small: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Topic(small.folder / "topics", "buyers")
    with open_sink(made.options) as sink:
        sink.put(pa.Table.from_pylist([ROW]))
    made.file(small.catalogue)
    profile = small.catalogue.parent / "profiles" / "prod.toml"
    profile.parent.mkdir()
    profile.write_text('[types.file]\n"mask.columns" = "email=hide"\n')
    rights = {"buyers": {READ: ["reader"]}}
    rows = "/api/v1/streams/buyers/rows"
    with people(users_file(tmp_path / "users.toml", rights)) as client:
        log_in(client, "reader")
        assert client.get(rows).status_code == 403
        monkeypatch.setenv("STREAMFACTORY_PROFILE", "prod")
        (row,) = client.get(rows).get_json()["items"]
        assert (row["email"], row["id"]) == ("***", 1)


def test_a_path_leads_through_maps_and_strange_texts(
    small: World, tmp_path: Path
) -> None:
    """What its steps are depends on the type; one strange row hides no other."""
    card = pa.struct([("number", pa.string()), ("kind", pa.string())])
    schema = pa.schema(
        [
            ("cards", pa.map_(pa.string(), card)),
            ("notes", pa.map_(pa.string(), pa.string())),
            ("text", pa.string()),
        ]
    )
    cards = [("Visa", {"number": CARD, "kind": "gold"})]
    notes = [("pay", json.dumps({"card": CARD, "ok": 1})), ("free", "kept")]
    texts = [
        json.dumps({"a": TOKEN, "b": "\ud800"}),
        json.dumps({"a": f"\ud800{TOKEN}"}),
        "[" * 900 + json.dumps({"a": TOKEN}) + "]" * 900,
    ]
    rows = [{"cards": cards, "notes": notes, "text": text} for text in texts]
    made = Topic(small.folder / "topics", "nested")
    with open_sink(made.options) as sink:
        sink.put(pa.Table.from_pylist(rows, schema))
    masks = "cards.visa.number=hide, notes.pay.card=hide, text.a=hide"
    made.options |= {"mask.columns": masks}
    made.file(small.catalogue)
    rights = {"*": {READ: ["reader"]}}
    with people(users_file(tmp_path / "users.toml", rights)) as client:
        log_in(client, "reader")
        items = client.get("/api/v1/streams/nested/rows").get_json()["items"]
    shown = {"number": "***", "kind": "gold"}
    for item in items:
        assert json.loads(item["cards"]) == [["Visa", shown]]
        (_, pay), free = json.loads(item["notes"])
        assert json.loads(pay) == {"card": "***", "ok": 1}
        assert free == ["free", "kept"]
    found = [item["text"] for item in items]
    assert json.loads(found[0]) == {"a": "***", "b": "\ud800"}
    assert json.loads(found[1]) == {"a": "***"}
    assert found[2] == "***"  # nested too deeply


WRONG: Final = (
    "",
    "a",
    "a=",
    "=hide",
    "a=mask",
    "a=cut",
    "a=cut:0",
    "a=cut:x",
    "a=hide:1",
    "a=hash:",
    "a=cut:99999",
    "a=hide, a=hash",
    "a=hide,",
)


@pytest.mark.parametrize("text", WRONG)
def test_malformed_masks_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"mask|length|twice"):
        MASKS.parse(text)


def test_hashes_need_a_key() -> None:
    given = {"streamType": "memory", "stream.memory.topic.name": "t"}
    given["mask.columns"] = "a=hash"
    properties = tuple(Property(key, text, "test") for key, text in given.items())
    found = inspect(StreamDefinition("s", properties), default_manager())
    assert any("requires mask.key" in str(one) for one in found.errors)


def test_keys_headers_and_undecodable_messages_are_hidden(
    small: World, tmp_path: Path
) -> None:
    made = Topic(small.folder / "topics", "posted")
    made.options |= {"stream.file.messages": "true", "stream.file.partitions": "1"}
    made.options["stream.file.decoder.class.name"] = "raw"
    values = [json.dumps({"id": 7, "email": EMAIL}).encode(), f"{{{CARD}".encode()]
    for value in values:
        row: dict[str, Any] = {"value": value, "_key": EMAIL.encode()}
        row["_headers"] = [{"key": "trace", "value": TOKEN.encode()}]
        with open_sink(made.options) as sink:
            sink.put(pa.Table.from_pylist([row]))
    made.options["stream.file.decoder.class.name"] = "json"
    made.options["schema"] = "id bigint, email string"
    made.options["mask.columns"] = "email=cut:1"
    made.file(small.catalogue)
    rights = {"*": {READ: ["reader"], VALUES: ["viewer"]}}
    asked = [
        f"{path}{more}".replace("buyers", "posted")
        for path in PAGES
        for more in ("", "&count=1&from=0&direction=forward")
        if not ("from=" in path and more) and not ("offset=" in path and more)
    ]
    with people(users_file(tmp_path / "users.toml", rights)) as client:
        log_in(client, "reader")
        shown = ""
        for path in asked:
            text = html.unescape(client.text(path.replace("rows&", "rows?")))
            shown += text
            for secret in SECRETS:
                assert secret not in text, (path, text)
        assert "p…" in shown
        assert "rows cannot be shown (decode)" in shown
        log_in(client, "viewer")
        text = html.unescape("".join(map(client.text, asked[:1] + asked[4:6])))
        assert CARD in text or EMAIL in text
