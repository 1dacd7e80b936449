"""A topic is not copied onto itself, by whatever name it has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.transfer.test_jobs import ids, topic

import streamfactory
from streamfactory.spi import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

ROWS = pa.table({"id": [1, 2, 3]})


@pytest.fixture
def orders(tmp_path: Path) -> dict[str, str]:
    properties = topic(tmp_path, "orders")
    with streamfactory.open_sink(properties) as sink:
        sink.put(ROWS)
    return properties


def refused(source: dict[str, str], sink: dict[str, str]) -> str:
    with pytest.raises(ConfigError, match="both read and written") as caught:
        streamfactory.copy(source, sink)
    return str(caught.value)


def test_a_copy_onto_itself_is_refused(orders: dict[str, str]) -> None:
    assert "write to another topic" in refused(orders, orders)
    assert ids(orders) == [1, 2, 3]


def test_another_path_of_the_same_folder_is_noticed(
    orders: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "topics")
    refused(orders, {**orders, "stream.file.path": str(tmp_path / "link")})
    assert ids(orders) == [1, 2, 3]


def test_a_server_of_the_same_folder_is_noticed_both_ways(
    orders: dict[str, str],
) -> None:
    with streamfactory.serve(path=orders["stream.file.path"]) as server:
        served = {
            "streamType": "flight",
            "stream.flight.location": server.location,
            "stream.flight.topic.name": "orders",
        }
        refused(orders, served)
        refused(served, orders)
    assert ids(orders) == [1, 2, 3]


def test_topics_of_one_name_in_two_folders_are_copied(
    orders: dict[str, str], tmp_path: Path
) -> None:
    elsewhere = {**orders, "stream.file.path": str(tmp_path / "elsewhere")}
    streamfactory.copy(orders, elsewhere)
    assert ids(elsewhere) == [1, 2, 3]
