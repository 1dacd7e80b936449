"""The map, who reads a stream, and the overview: searched, sorted, problems first."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from tests.ui.test_pages import assert_harmless

from streamfactory.ui.drawing import links_map
from streamfactory.ui.links import Link, catalogue_links
from streamfactory.ui.lookups import Answer
from streamfactory.ui.sorting import Shown, ordered, searched

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.ui.conftest import Browser, World

    Serve = Callable[..., Browser]

SCRIPT = "<script>alert(1)</script>\u202e"


def lag(kind: str, name: str, behind: int | None) -> dict[str, Any]:
    return {"kind": kind, "name": name, "stream": "clicks", "behind": behind}


def test_links_are_those_of_configurations_checkpoints_and_groups() -> None:
    found = catalogue_links(
        [
            (
                "clicks",
                Answer({"spool": "kept", "dead_letters": "bad"}),
                Answer([lag("group", "billing", 3)]),
            ),
            ("bad", Answer({}), Answer(error={"error": "unsupported"})),
        ],
        [
            (
                "delays",
                Answer(
                    {
                        "sources": ["clicks", "bad"],
                        "sinks": [
                            {"table": True, "to": "s3://x"},
                            {"table": False, "to": "hours"},
                        ],
                        "dead_letters": "bad",
                    }
                ),
                Answer([lag("pipeline", "delays", None)]),
            )
        ],
    )
    seen = {(one.source, one.target, one.what, one.lag) for one in found.links}
    clicks, delays = ("stream", "clicks"), ("pipeline", "delays")
    assert seen == {
        (("transport", "clicks"), ("spool", "clicks"), "", None),
        (("spool", "clicks"), clicks, "", None),
        (clicks, ("stream", "bad"), "dead letters", None),
        (clicks, ("group", "billing in clicks"), "", 3),
        (clicks, delays, "", None),
        (("stream", "bad"), delays, "", None),
        (delays, ("table", "s3://x"), "", None),
        (delays, ("stream", "hours"), "", None),
        (delays, ("stream", "bad"), "dead letters", None),
    }
    assert {one.target for one in found.readers("clicks")} >= {delays}
    assert [one.source for one in found.writers("hours")] == [delays]


@pytest.mark.parametrize("seed", range(20))
def test_any_links_can_be_drawn(seed: int) -> None:
    chance = random.Random(seed)
    nodes = [("stream", f"{SCRIPT}{number}") for number in range(chance.randrange(30))]
    links = [
        Link(chance.choice(nodes), chance.choice(nodes), "", 1, True)
        for _ in range(chance.randrange(60) if nodes else 0)
    ]
    drawn = str(links_map(nodes, links, lambda _: SCRIPT, lambda one: f'/"{one[1]}'))
    assert drawn.count("<rect") == len(nodes)
    assert "<script" not in drawn
    assert '/"<' not in drawn


def test_the_map_shows_lag_and_leads_to_the_pages(world: World, serve: Serve) -> None:
    del world
    browser = serve()
    text = browser.get("/map").text
    assert_harmless(text)
    for part in ("billing in clicks", "lag 10", "/pipeline?name=delays", "<svg"):
        assert part in text
    stream = browser.get("/stream", name="clicks").text
    assert "Read by the pipeline <a" in stream
    only = browser.get("/stream", name="clicks", set="only").text
    assert len(only) < len(stream)
    assert "<code>stream.file.partitions</code>" in only
    assert "<td>default</td>" in stream
    assert "<td>default</td>" not in only


def shown(name: str, held: int | None, *, bad: bool = False) -> Shown:
    state = {"held": held, "partitions": [1]} if held is not None else None
    error = {"error": "connection_failed"} if bad else None
    return Shown(
        name,
        Answer({"problems": [], "type": "file"}),
        Answer(state, error),
        Answer({"bytes": held}),
    )


def test_problems_are_on_top_and_numbers_fall() -> None:
    streams = [
        shown("a", 1),
        shown("b", None, bad=True),
        shown("c", 5),
        shown("d", None),
    ]
    assert [one.name for one in ordered(streams, "problems")] == ["b", "a", "c", "d"]
    assert [one.name for one in ordered(streams, "nonsense")] == ["b", "a", "c", "d"]
    for order in ("offsets", "size"):
        assert [one.name for one in ordered(streams, order)][:2] == ["c", "a"]
    assert searched(["Clicks", "hours"], "CLI") == ["Clicks"]


def test_the_overview_is_searched_and_has_sizes(world: World, serve: Serve) -> None:
    del world
    browser = serve()
    text = browser.get("/", q="CLICKS", sort="size").text
    assert "/stream?name=clicks" in text
    assert " bytes</td>" in text
    none = browser.get("/", q="<script>").text
    assert "/stream?name=clicks" not in none
    assert_harmless(none)
