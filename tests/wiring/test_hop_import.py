"""Hop's data-stream metadata loads as it is."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

from streamfactory.spi import ConfigError, Unsupported
from streamfactory.wiring.config.catalogue import read_definitions
from streamfactory.wiring.config.definition import StreamDefinition
from streamfactory.wiring.config.imports.hop import read_hop, write_hop

DATA = Path(__file__).parents[1] / "data" / "hop"


def read_one(name: str) -> StreamDefinition:
    [definition] = read_definitions(DATA / name)
    return definition


def values(definition: StreamDefinition) -> dict[str, str]:
    return {p.key: p.text for p in definition.properties}


def notes(definition: StreamDefinition) -> list[str]:
    assert all(note.level == "warning" for note in definition.notes)
    return [str(note).partition(" [")[0] for note in definition.notes]


def test_random_access_file() -> None:
    definition = read_one("random_access_file.json")
    assert definition.name == "customers"
    assert definition.description == "Customers, for the tests"
    assert values(definition) == {
        "streamType": "file",
        "stream.file.topic.name": "customers",
        "stream.file.format": "file",
        "stream.file.path": f"{tempfile.gettempdir()}/customers.arrow",
        "batch.rows": "50",
    }
    assert not definition.notes


def test_properties_report_their_line() -> None:
    path = DATA / "random_access_file.json"
    origins = {p.key: p.origin for p in read_one(path.name).properties}
    assert origins == {
        "streamType": f"{path}:3",
        "stream.file.topic.name": f"{path}:8",
        "stream.file.format": f"{path}:3",
        "stream.file.path": f"{path}:4",
        "batch.rows": f"{path}:5",
    }


def test_stream_file_with_variables_and_a_folder() -> None:
    definition = read_one("stream_file.json")
    assert values(definition) == {
        "streamType": "file",
        "stream.file.topic.name": "sensor-readings",
        "stream.file.format": "stream",
        "stream.file.path": "${env:PROJECT_HOME}/out/${env:ENVIRONMENT}.arrow",
        "stream.meta.virtualPath": "/lab/files",
    }
    assert notes(definition) == [
        (
            "filename: the Hop variable ${PROJECT_HOME} is read from the environment: "
            "${env:PROJECT_HOME}"
        ),
        (
            "filename: the Hop variable %%ENVIRONMENT%% is read from the environment: "
            "${env:ENVIRONMENT}"
        ),
    ]


def test_flight() -> None:
    definition = read_one("flight.json")
    assert values(definition) == {
        "streamType": "flight",
        "stream.flight.topic.name": "live",
        "stream.flight.location": "grpc://127.0.0.1:33333",
        "batch.rows": "${env:BATCH}",
    }
    assert notes(definition) == [
        (
            "bufferSize: has no equivalent: the server stores rows, and readers bound "
            "memory"
        ),
        (
            "batchSize: the Hop variable ${BATCH} is read from the environment: "
            "${env:BATCH}"
        ),
        (
            "schemaDefinition: the schema definition 'customer-row' of the Hop project "
            "is not read; declare the option `schema`"
        ),
        (
            "hostname: 0.0.0.0 is an address to listen on: clients connect to "
            "127.0.0.1; set stream.flight.location"
        ),
    ]


def test_flight_without_an_address_goes_where_hop_would() -> None:
    body: dict[str, Any] = {"dataStream": {"ArrowFlightStream": {}}}
    [definition] = read_hop(body, lambda pointer: "live.json", "live")
    assert values(definition) == {
        "streamType": "flight",
        "stream.flight.topic.name": "live",
        "stream.flight.location": "grpc://localhost:33333",
    }


def test_unknown_implementation_lists_the_known_ones() -> None:
    path = DATA / "socket.json"
    with pytest.raises(ConfigError) as caught:
        read_definitions(path)
    assert str(caught.value) == (
        f"1 problem in {path}\n"
        "  ArrowSocketStream: is not a known implementation of a data stream; known "
        "are ArrowRandomAccessFile, ArrowStreamFile, ArrowFlightStream "
        f"[{path}:3]"
    )


def test_bad_numbers_are_reported_where_hop_falls_back_silently() -> None:
    path = DATA / "bad_numbers.json"
    with pytest.raises(ConfigError) as caught:
        read_definitions(path)
    assert [str(problem) for problem in caught.value.problems] == [
        f"bufferSize: 'lots' is not a whole number [{path}:4]",
        f"batchSize: '5e3' is not a whole number [{path}:5]",
        f"hostname: is null: omit the key [{path}:6]",
    ]


@pytest.mark.parametrize(
    ("choices", "what"),
    [
        ({}, "must have one key, the implementation, with its settings"),
        ({"ArrowStreamFile": {}, "ArrowFlightStream": {}}, "must have one key, the "),
        ("ArrowStreamFile", "must have one key, the implementation, with its settings"),
        ({"ArrowStreamFile": "x.arrow"}, "is not an object of settings"),
    ],
)
def test_an_element_requires_one_implementation(choices: object, what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_hop({"dataStream": choices}, lambda pointer: "x.json", "x")
    [problem] = caught.value.problems
    assert problem.what.startswith(what)


def test_members_that_are_not_known_are_named() -> None:
    body = {
        "name": "x",
        "owner": "lab",
        "dataStream": {
            "ArrowStreamFile": {"filename": "x.arrow", "compression": "zstd"}
        },
    }
    [definition] = read_hop(body, lambda pointer: "x.json", "x")
    assert notes(definition) == [
        "compression: is not imported",
        "owner: is not imported",
    ]


def test_references_of_ours_stay() -> None:
    body = {"dataStream": {"ArrowStreamFile": {"filename": "${env:HOME}/x.arrow"}}}
    [definition] = read_hop(body, lambda pointer: "x.json", "x")
    assert values(definition)["stream.file.path"] == "${env:HOME}/x.arrow"
    assert not definition.notes


@pytest.mark.parametrize(
    "name", ["random_access_file.json", "stream_file.json", "flight.json"]
)
def test_a_definition_is_written_as_the_metadata_that_it_came_from(name: str) -> None:
    definition = read_one(name)
    element, left_out = write_hop(definition)
    assert left_out == []
    [again] = read_hop(element, lambda _: "", "other")
    assert values(again) == values(definition)
    assert (again.name, again.description) == (definition.name, definition.description)


def test_what_hop_cannot_express_is_left_out_or_refused() -> None:
    given = {
        "streamType": "file",
        "stream.file.format": "stream",
        "stream.file.path": "clicks.arrows",
        "out.of.range": "earliest",
    }
    element, left_out = write_hop(StreamDefinition.of("clicks", given))
    assert element == {
        "name": "clicks",
        "dataStream": {"ArrowStreamFile": {"filename": "clicks.arrows"}},
    }
    assert left_out == ["out.of.range"]
    for other in (
        {"streamType": "kafka"},
        {"streamType": "file", "stream.file.format": "log"},
        {"streamType": "flight", "stream.flight.location": "grpc+tls://host:1"},
        {},
    ):
        with pytest.raises(Unsupported):
            write_hop(StreamDefinition.of("clicks", other))
