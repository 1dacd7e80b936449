"""Every pattern, payload and framing, between a sink and a reader of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.zeromq.peers import numbers_of, properties, rows

import streamfactory
from streamfactory.spi import Finished

if TYPE_CHECKING:
    from tests.zeromq.peers import Peers

    from streamfactory.wiring.writing.sink import Sink

EPOCHS, EACH = 6, 7


def write(sink: Sink) -> None:
    for epoch in range(EPOCHS):
        sink.put(rows(range(epoch * EACH, (epoch + 1) * EACH)), epoch=epoch)
    sink.factory.end_stream(Finished())


@pytest.mark.parametrize("reader_binds", [True, False])
@pytest.mark.parametrize("payload", ["arrow", "raw"])
@pytest.mark.parametrize(
    ("pattern", "framing"),
    [
        ("pub-sub", "sequenced"),
        ("push-pull", "sequenced"),
        ("dealer-router", "sequenced"),
        ("pub-sub", "plain"),
        ("push-pull", "plain"),
    ],
)
def test_what_is_written_is_read_once_and_in_order(
    place: str,
    peers: Peers,
    pattern: str,
    framing: str,
    payload: str,
    *,
    reader_binds: bool,
) -> None:
    shared = {"framing": framing, "payload": payload}
    ends = ["bind", "connect"] if reader_binds else ["connect", "bind"]
    theirs = properties(pattern, **{ends[1]: place}, **shared)
    ours = properties(pattern, **{ends[0]: place}, **shared)
    if payload == "raw":
        theirs["stream.zeromq.decoder.class.name"] = "json"
        ours |= {"stream.zeromq.decoder.class.name": "json", "schema": "number bigint"}
    if pattern == "dealer-router":
        ours["stream.zeromq.acknowledge"] = "fetched"
    peers.write(theirs, write)
    with streamfactory.open(ours, follow=True) as stream:
        found, losses = numbers_of(stream, EPOCHS * EACH)
        while framing == "sequenced" and not stream.ends:
            more = stream.next_batch(0.2)
            assert more is None or not more.num_rows
        ended = [type(end) for end in stream.ends.values()]
    assert found == [*range(EPOCHS * EACH)]
    assert losses == []
    assert ended == ([Finished] if framing == "sequenced" else [])
    peers.join()
