"""The state of a Delta table from its log: commits and checkpoints of every form."""

from __future__ import annotations

import json
import random
import time
import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.tables.test_delta import FEED, append, delete_by_vector, read, rows_of

from streamfactory.backends.delta.actions import Metadata
from streamfactory.backends.delta.state import State
from streamfactory.spi import CorruptData, FormatRefused, OffsetOutOfRange, StreamError

if TYPE_CHECKING:
    from pathlib import Path

Action = dict[str, Any]
ADD = pa.struct(
    [
        ("path", pa.string()),
        ("partitionValues", pa.map_(pa.string(), pa.string())),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("stats", pa.string()),
        (
            "deletionVector",
            pa.struct(
                [
                    ("storageType", pa.string()),
                    ("pathOrInlineDv", pa.string()),
                    ("offset", pa.int32()),
                    ("sizeInBytes", pa.int32()),
                    ("cardinality", pa.int64()),
                ]
            ),
        ),
        ("stats_parsed", pa.struct([("numRecords", pa.int64())])),
    ]
)
METADATA = pa.struct(
    [
        ("id", pa.string()),
        ("format", pa.struct([("provider", pa.string())])),
        ("schemaString", pa.string()),
        ("partitionColumns", pa.list_(pa.string())),
        ("configuration", pa.map_(pa.string(), pa.string())),
    ]
)
PROTOCOL = pa.struct(
    [
        ("minReaderVersion", pa.int32()),
        ("minWriterVersion", pa.int32()),
        ("readerFeatures", pa.list_(pa.string())),
    ]
)
SIDECAR = pa.struct([("path", pa.string()), ("sizeInBytes", pa.int64())])
KINDS = {"add": ADD, "metaData": METADATA, "protocol": PROTOCOL, "sidecar": SIDECAR}


@pytest.mark.parametrize("seed", range(4))
def test_snapshots_are_what_the_writer_reads(seed: int, tmp_path: Path) -> None:
    """Oracle: ``deltalake``, after random operations, checkpoints and cleaned logs."""
    chosen = random.Random(seed)
    path = tmp_path / "table"
    write_deltalake(str(path), rows_of(0, 1), configuration=FEED)
    number = 2
    for _ in range(25):
        table = DeltaTable(str(path))
        kind = chosen.choice(["append"] * 4 + ["delete", "update", "optimize", "check"])
        if kind == "append":
            count = chosen.randint(1, 4)
            append(path, *range(number, number + count))
            number += count
        elif kind == "delete":
            table.delete(f"id % 7 = {chosen.randint(0, 6)}")
        elif kind == "update":
            table.update(updates={"id": f"id + {number}"}, predicate="id % 5 = 1")
            number *= 2
        elif kind == "optimize":
            table.optimize.compact()
        else:
            table.create_checkpoint()
            for log in sorted((path / "_delta_log").glob("*.json"))[:-1]:
                if chosen.random() < 0.5:
                    break
                log.unlink()
        wanted = DeltaTable(str(path)).to_pyarrow_table().column("id").to_pylist()
        assert sorted(i for i, *_ in read(path)) == sorted(wanted), kind


def actions_of(path: Path) -> list[Action]:
    """The actions of all commits, in the form of checkpoints."""
    found: list[Action] = []
    for log in sorted((path / "_delta_log").glob("*.json")):
        for line in log.read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                values = action["add"].pop("partitionValues")
                action["add"]["partitionValues"] = [*values.items()]
            if "metaData" in action:
                configuration = action["metaData"].pop("configuration", {})
                action["metaData"]["configuration"] = [*configuration.items()]
            if action.keys() & KINDS:
                found.append(action)
    return found


def save(path: Path, actions: list[Action]) -> None:
    schema = pa.schema(list(KINDS.items()))
    pq.write_table(pa.Table.from_pylist(actions, schema), path)


def checkpointed(path: Path, form: str, *, parsed: bool = False) -> Path:
    """Replace the log by a checkpoint of some form, and a commit behind it."""
    log, actions = path / "_delta_log", actions_of(path)
    files = [one for one in actions if "add" in one]
    if parsed:
        for one in files:
            one["add"]["stats_parsed"] = json.loads(one["add"].pop("stats"))
    others = [one for one in actions if "add" not in one]
    version = len([*log.glob("*.json")]) - 1
    start = f"{version:020}.checkpoint"
    (log / "_sidecars").mkdir()
    side = f"{uuid.uuid4()}.parquet"
    if form == "one":
        save(log / f"{start}.parquet", actions)
    elif form == "parts":
        for at, part in enumerate((others + files[:1], files[1:]), 1):
            save(log / f"{start}.{at:010}.{2:010}.parquet", part)
    elif form == "sidecars":
        save(log / "_sidecars" / side, files)
        others.append({"sidecar": {"path": side, "sizeInBytes": 1}})
        save(log / f"{start}.{uuid.uuid4()}.parquet", others)
    else:
        save(log / "_sidecars" / side, files)
        for one in others:
            if "metaData" in one:
                one["metaData"]["configuration"] = {}
        others.append({"sidecar": {"path": side, "sizeInBytes": 1}})
        text = "\n".join(json.dumps(one) for one in others)
        (log / f"{start}.{uuid.uuid4()}.json").write_text(text)
    for number in range(version):
        (log / f"{number:020}.json").unlink()
    return log / "_sidecars" / side


FORMS = ["one", "parts", "sidecars", "json"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "table"
    write_deltalake(str(path), rows_of(1, 2))
    append(path, 3)
    append(path, 4)
    return path


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("parsed", [False, True])
def test_a_checkpoint_of_each_form_is_read(
    path: Path, form: str, *, parsed: bool
) -> None:
    checkpointed(path, form, parsed=parsed)
    assert sorted(i for i, *_ in read(path)) == [1, 2, 3, 4]
    with pytest.raises(OffsetOutOfRange):
        read(path, stream__delta__start__commit="0")


@pytest.mark.parametrize("form", FORMS)
def test_a_damaged_checkpoint_is_corrupt_data(path: Path, form: str) -> None:
    side = checkpointed(path, form)
    file = side if side.exists() else max((path / "_delta_log").glob("*.parquet"))
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(CorruptData, match="cannot be read"):
        read(path)


def test_a_sidecar_that_is_gone_is_named(path: Path) -> None:
    side = checkpointed(path, "sidecars")
    side.unlink()
    with pytest.raises(CorruptData, match=side.name):
        read(path)


@pytest.mark.parametrize("name", ["../../x.parquet", "/etc/passwd", "file:///etc/x"])
def test_a_sidecar_outside_of_the_log_is_refused(path: Path, name: str) -> None:
    checkpointed(path, "json")
    (log,) = (path / "_delta_log").glob("*.checkpoint.*.json")
    lines = log.read_text().splitlines()
    lines[-1] = json.dumps({"sidecar": {"path": name}})
    log.write_text("\n".join(lines))
    with pytest.raises(FormatRefused, match="outside"):
        read(path)


def test_a_checkpoint_that_lacks_a_part_is_passed_over(path: Path) -> None:
    actions = actions_of(path)
    log = path / "_delta_log"
    save(log / f"{1:020}.checkpoint.{1:010}.{2:010}.parquet", actions)
    assert sorted(i for i, *_ in read(path)) == [1, 2, 3, 4]


def test_a_log_with_a_gap_and_no_checkpoint_is_a_loss(path: Path) -> None:
    (path / "_delta_log" / f"{1:020}.json").unlink()
    with pytest.raises(OffsetOutOfRange, match="commit"):
        read(path)


def test_a_version_that_no_offset_can_name_is_refused(path: Path) -> None:
    (path / "_delta_log" / f"{'9' * 20}.json").write_text("{}")
    with pytest.raises(FormatRefused, match="unsupported"):
        read(path)


COUNTS = [-1, -5, True, 1.0, "3", 10**30, 1 << 39, [3]]


def changed(path: Path, /, **values: Any) -> None:
    """Change the first file that the second commit adds."""
    log = path / "_delta_log" / f"{1:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for one in actions:
        if "add" in one:
            one["add"] |= values
    log.write_text("\n".join(map(json.dumps, actions)))


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("start", [{}, {"stream__delta__start__commit": "0"}])
def test_a_count_that_is_none_is_damage(
    path: Path, count: Any, start: dict[str, str]
) -> None:
    changed(path, stats=json.dumps({"numRecords": count}))
    with pytest.raises(CorruptData, match=r"commit 1 .* damaged: numRecords"):
        read(path, **start)


@pytest.mark.parametrize("name", ["size", "modificationTime"])
@pytest.mark.parametrize("value", [-1, True, 1.5, "7", 1 << 63])
def test_a_number_of_a_file_that_is_none_is_damage(
    path: Path, name: str, value: Any
) -> None:
    changed(path, **{name: value})
    with pytest.raises(CorruptData, match=f"damaged: {name}"):
        read(path)


def test_a_count_of_no_rows_loses_and_doubles_none(path: Path) -> None:
    changed(path, stats=json.dumps({"numRecords": 0}))
    assert sorted(i for i, *_ in read(path)) == [1, 2, 3, 4]


@pytest.mark.parametrize("count", [2, 100])
def test_a_file_with_fewer_rows_than_the_log_states_is_damage(
    path: Path, count: int
) -> None:
    changed(path, stats=json.dumps({"numRecords": count}))
    with pytest.raises(CorruptData, match=f"has 1 rows, not the {count} that"):
        read(path)


def test_fewer_rows_than_the_log_states_are_read_up_to_the_count(path: Path) -> None:
    log = path / "_delta_log" / f"{0:020}.json"
    log.write_text(log.read_text().replace('numRecords\\":2', 'numRecords\\":1'))
    with pytest.raises(CorruptData, match="has more rows than the 1"):
        read(path)


@pytest.mark.parametrize(
    "protocol",
    [
        {"minReaderVersion": -1},
        {"minReaderVersion": "1"},
        {"minReaderVersion": True},
        {"readerFeatures": "all"},
        {},
    ],
)
def test_a_protocol_that_is_none_is_damage(path: Path, protocol: Action) -> None:
    log = path / "_delta_log" / f"{0:020}.json"
    lines = [json.loads(one) for one in log.read_text().splitlines()]
    for one in lines:
        if "protocol" in one:
            one["protocol"] = protocol
    log.write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(CorruptData, match="commit 0 of the table is damaged"):
        read(path)


def test_a_deletion_vector_is_honoured_without_its_feature(tmp_path: Path) -> None:
    path = tmp_path / "table"
    write_deltalake(str(path), rows_of(*range(10)))
    delete_by_vector(path, [1, 4], upgrade=False)
    assert [i for i, *_ in read(path)] == [0, 2, 3, 5, 6, 7, 8, 9]


def test_a_table_of_many_columns_is_read(tmp_path: Path) -> None:
    path = tmp_path / "table"
    many = pa.table({f"c{i}": [i] for i in range(2000)})
    pq.write_table(many, tmp_path / "x.parquet")
    write_deltalake(str(path), rows_of(1))
    field = {"type": "long", "nullable": True, "metadata": {}}
    fields = [{"name": name, **field} for name in many.column_names]
    schema = json.dumps({"type": "struct", "fields": fields})
    log = path / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for one in actions:
        if "metaData" in one:
            one["metaData"]["schemaString"] = schema
        if "add" in one:
            pq.write_table(many, path / one["add"]["path"])
    log.write_text("\n".join(map(json.dumps, actions)))
    from tests.tables.test_delta import properties

    import streamfactory

    with streamfactory.open(properties(path)) as stream:
        rows = stream.to_reader().read_all()
    assert rows.select(many.column_names).equals(many)


def test_a_table_of_many_partition_columns_is_opened() -> None:
    names = [f"c{i}" for i in range(20_000)]
    field = {"type": "long", "nullable": True, "metadata": {}}
    schema = {"type": "struct", "fields": [{"name": n, **field} for n in names]}
    metadata = Metadata("x", json.dumps(schema), tuple(names), {})
    began = time.process_time()
    State(1, metadata)
    assert time.process_time() - began < 10  # 40 s if each is searched for


@pytest.mark.parametrize(
    "path_of_file", ["file:/x", "file:///etc/passwd", "s3://b/x", "C:\\x", "..\\x"]
)
def test_a_file_of_another_place_is_refused(path: Path, path_of_file: str) -> None:
    changed(path, path=path_of_file)
    with pytest.raises(StreamError) as caught:
        read(path)
    assert caught.value.code != "untranslated"
