"""Damaged inputs harm nothing, and the suite that says so notices what would."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.fuzz import corpus, ipc, running
from tests.fuzz.columns import amplifier, columns
from tests.fuzz.entries.every import ENTRIES, GROUPS
from tests.fuzz.planted import DEFECTS
from tests.fuzz.proving import plan, shares
from tests.fuzz.running import Item, Run
from tests.fuzz.verdicts import unsound
from tests.proving.tiers import sample

if TYPE_CHECKING:
    from pathlib import Path

FEW = "tests/fuzz/test_fuzz.py::test_no_damaged_input_does_harm"
INPUTS = [400, 5000]
"""Of all groups together; `make prove PATHS=fuzz` feeds as many as asked for."""


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fuzz") / "corpus"
    corpus.build(path)
    return path


@pytest.mark.timeout(900)
@pytest.mark.parametrize("inputs", sample(INPUTS, "more inputs", shown_by=FEW))
@pytest.mark.parametrize("group", GROUPS)
def test_no_damaged_input_does_harm(
    group: str, inputs: int, seeds: Path, tmp_path: Path
) -> None:
    items = plan(inputs, GROUPS[group], shares())
    place = tmp_path / "run"
    place.mkdir()
    report = Run(items, 0, place, seeds, tmp_path / "kept").run()
    assert report.good, str(report)
    for item in items:
        fed = item.count * ENTRIES[item.entry].MESSAGES
        assert report.inputs[item.entry] == fed
        # As many answers as calls: none of them was left out.
        assert report.outcomes[item.entry].total() == item.count
    assert not report.unbalanced()
    outcomes = sum((report.outcomes[item.entry] for item in items), start=_none())
    assert outcomes["accepted"], "nothing was accepted: all damage was too large"


def _none() -> Counter[str]:
    return Counter()


@pytest.mark.long("three runs, one of them repeated")
@pytest.mark.timeout(900)
def test_planted_defects_are_found_kept_and_repeated(
    seeds: Path, tmp_path: Path
) -> None:
    place, keep = tmp_path / "run", tmp_path / "kept"
    place.mkdir()
    # With this seed each of them is met, and those that kill a child once.
    items = [Item("position", 8), Item("config-toml", 5)]
    report = Run(items, 569, place, seeds, keep, planted=True, busy=1).run()
    kept = {kept.finding.kind: kept for kept in report.kept.values()}
    assert kept.keys() == DEFECTS.keys(), f"{report.outcomes}\n{report}"
    assert {one.finding.entry for one in kept.values()} == {"position"}
    assert kept["crash"].repeats
    assert kept["hang"].repeats
    # What came after the culprits was fed, too.
    assert report.outcomes["config-toml"].total() == 5
    assert f"running position {kept['untyped'].path}" in str(report)
    again = running.feed_file("position", kept["untyped"].path, seeds, planted=True)
    assert [one.finding.kind for one in again.kept.values()] == ["untyped"]
    assert running.feed_file("position", kept["untyped"].path, seeds).good


def test_a_seed_makes_the_same_inputs_again(seeds: Path, tmp_path: Path) -> None:
    def made(name: str, place: Path) -> list[bytes]:
        place.mkdir(parents=True)
        entry = ENTRIES[name](place, corpus.load(seeds))
        try:
            return [entry.make(random.Random(f"5/{name}/{n}")) for n in range(10)]
        finally:
            entry.close()

    for name in ENTRIES:
        first = made(name, tmp_path / "a" / name)
        assert first == made(name, tmp_path / "b" / name), name
        assert len(set(first)) > 1, name


def test_messages_that_are_put_together_again_are_the_same(seeds: Path) -> None:
    for seed in corpus.load(seeds):
        parts = ipc.messages(seed.stream)
        whole = b"".join(part.assemble() for part in parts) + ipc.END
        assert [p.buffers for p in ipc.messages(whole)] == [p.buffers for p in parts]


def test_values_of_every_type_are_judged_and_nulls_without_number_take_no_time() -> (
    None
):
    for name, column in columns().items():
        assert unsound(pa.record_batch({name: column})) is None
    many = amplifier("fixed_lists")
    assert many.column(0).values.null_count == len(many.column(0).values) == 2**28
    assert unsound(many) is None
