"""No page shows a secret, whichever way it is planted."""

from __future__ import annotations

import html
import json
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
from tests.checkpoints.conftest import Topic
from tests.ui.conftest import TOKEN
from tests.ui.test_access import confirmation

from streamfactory.spi import ConnectionFailed
from streamfactory.ui import actions
from streamfactory.wiring.reading import opened
from streamfactory.wiring.reading.source import Source
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest
    from tests.ui.conftest import Browser, World

    from streamfactory.wiring.config.settled import Configured

    Serve = Callable[..., Browser]

PLANTED = "hunter2-\"Q\\uote&<b>'s"
LITERAL = "literal-hunter2"


def test_no_page_shows_a_secret(
    world: World,
    serve: Serve,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("PLANTED", PLANTED)
    leaky = Topic(world.folder / "topics", "leaky")
    leaky.file(
        world.catalogue,
        **{
            "stream.meta.password": LITERAL,
            "stream.meta.home": f"https://user:{LITERAL}@example.org/",
        },
    )
    with open_sink(leaky.options) as sink:
        rows = pa.table({"text": [f"see https://user:{LITERAL}@example.org/"]})
        sink.put(rows, writer_id="w", epoch=0)
    kafka = {
        "streamType": "kafka",
        "stream.kafka.topic.name": "t",
        "stream.kafka.broker.list": "127.0.0.1:1",
        "stream.kafka.decoder.class.name": "raw",
        "stream.kafka.connection.timeout.millis": "500",
        "retry.max.attempts": "1",
        "stream.kafka.consumer.prop.security.protocol": "SASL_PLAINTEXT",
        "stream.kafka.consumer.prop.sasl.mechanism": "PLAIN",
        "stream.kafka.consumer.prop.sasl.username": "someone",
        "stream.kafka.consumer.prop.sasl.password": "${env:PLANTED}",
        "stream.kafka.producer.prop.sasl.password": LITERAL,
    }
    body = {"name": "safe", "properties": kafka}
    (world.catalogue / "safe.json").write_text(json.dumps(body))
    bad = {**kafka, "stream.kafka.no.such.option": "1", "fetch.timeout.millis": "x"}
    body = {"name": "bad", "properties": bad}
    (world.catalogue / "bad.json").write_text(json.dumps(body))
    (world.catalogue / "torn.toml").write_text(
        f"[properties]\n'stream.kafka.sasl.password' = '{LITERAL}\n"
    )
    browser = serve(token=TOKEN)
    browser.log_in()
    paths = ("/", "/dead-letters", "/process", "/actions/jobs", "/pipeline?name=delays")
    texts = [browser.get(path).text for path in paths]
    texts += [
        browser.get(page, stream=name, **more).text
        for name in ("safe", "bad", "leaky", "torn")
        for page, more in (
            ("/stream", {}),
            ("/messages", {}),
            ("/dead-letters", {}),
            ("/group", {"group": "g"}),
        )
    ]
    api = "/api/v1/streams"
    texts += [
        browser.get(f"{api}/{name}{part}").text
        for name in ("safe", "bad", "leaky", "torn")
        for part in ("", "/partitions", "/lag", "/rows")
    ]
    for text in texts:
        for secret in (PLANTED, LITERAL, TOKEN):
            for form in (secret, html.escape(secret), repr(secret)[1:-1]):
                assert form not in text
    # A page shows them; the log would repeat them at each look-up.
    assert "literal secret" not in caplog.text
    joined = "\n".join(texts)
    assert "***" in joined
    assert "sasl.username" in joined
    assert "no.such.option" in joined


def test_no_error_of_a_look_up_or_a_job_shows_a_secret(
    world: World, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED", PLANTED)
    kafka = {
        "streamType": "kafka",
        "stream.kafka.topic.name": "t",
        "stream.kafka.broker.list": "127.0.0.1:1",
        "stream.kafka.decoder.class.name": "raw",
        "stream.kafka.connection.timeout.millis": "500",
        "retry.max.attempts": "1",
        "stream.kafka.consumer.prop.sasl.password": "${env:PLANTED}",
    }
    body = {"name": "safe", "properties": kafka}
    (world.catalogue / "safe.json").write_text(json.dumps(body))
    world.letters({"one": b"first"})

    def failing(*_: object, **__: object) -> NoReturn:
        remedy = f"look at https://user:{LITERAL}@example.org/"
        raise ConnectionFailed(f"refused with {PLANTED!r}", remedy=remedy)

    def source_of(configured: Configured, **more: Any) -> Source:
        return (
            failing()
            if configured.config.name == "safe"
            else Source(configured, **more)
        )

    monkeypatch.setattr(opened, "Source", source_of)
    browser = serve(token=TOKEN)
    browser.log_in()
    page = browser.get("/dead-letters", stream="letters")
    form = {"stream": "letters", "to": "clicks", "csrf": browser.csrf(page)}
    asked = browser.ask("/actions/replay", form)
    monkeypatch.setattr(actions, "open_replay", failing)
    confirmed = browser.ask("/actions/replay", confirmation(asked.text))
    job = confirmed.headers["Location"]
    paths = [f"/messages?stream=safe&name=safe&{at}" for at in ("from=0", "as=raw")]
    texts = [browser.get(path).text for path in ("/stream?name=safe", *paths)]
    for text in texts:
        assert "refused with &#39;***&#39;" in text
    assert not any(html.escape(PLANTED) in text for text in texts)
    texts.append(browser.get(job).text)
    for text in texts:
        assert "***@example.org" in text
        assert LITERAL not in text
