"""Rule P4: five steps decide where a run begins, and an override is applied once."""

from __future__ import annotations

import pytest

from streamfactory.spark.checkpoints import Memory, Reset, resolve
from streamfactory.spi import MisuseError, Partition, Position, PositionRefused
from streamfactory.wiring.options.types import Ago

EARLIEST = Reset.parse("earliest")
LATEST = Reset.parse("latest")
LOST = PositionRefused("had a position, and has none")


def test_a_new_label_overrides_the_checkpoint_and_is_reported() -> None:
    found = resolve(Memory(ignored="monday"), None, "tuesday")
    assert (found.new_generation, found.start) == (True, None)
    assert found.memory == Memory(ignored="tuesday")
    assert found.why == (
        "--ignore-checkpoint tuesday is new: starts as the stream is configured"
    )


def test_a_fresh_label_beats_a_reset_that_was_applied_before() -> None:
    found = resolve(Memory(reset="earliest"), EARLIEST, "tuesday")
    assert (found.new_generation, found.start) == (True, None)
    assert found.memory == Memory(reset="earliest", ignored="tuesday")


def test_a_new_reset_overrides_the_checkpoint_and_is_reported() -> None:
    found = resolve(Memory(), EARLIEST)
    assert (found.new_generation, found.start) == (True, EARLIEST)
    assert found.memory == Memory(reset="earliest")
    assert found.why == "--reset is new: starts at earliest"


def test_a_fresh_reset_beats_a_label_that_was_applied_before() -> None:
    found = resolve(Memory(ignored="monday"), EARLIEST, "monday")
    assert (found.new_generation, found.start) == (True, EARLIEST)
    assert found.memory == Memory(reset="earliest", ignored="monday")


def test_reading_continues_at_the_last_position() -> None:
    found = resolve(Memory(reset="earliest", ignored="monday"))
    assert (found.new_generation, found.start) == (False, None)
    assert found.memory == Memory(reset="earliest", ignored="monday")
    assert found.why == "continues from the checkpoint"


def test_a_recorded_position_that_is_missing_is_refused_not_guessed() -> None:
    with pytest.raises(PositionRefused) as caught:
        resolve(Memory(refusal=LOST))
    assert caught.value is LOST


def test_an_override_that_was_applied_before_does_not_help_out() -> None:
    with pytest.raises(PositionRefused) as caught:
        resolve(Memory(refusal=LOST, reset="earliest"), EARLIEST)
    assert caught.value is LOST


@pytest.mark.parametrize("override", [(EARLIEST, None), (None, "tuesday")])
def test_a_fresh_override_passes_over_what_is_missing(
    override: tuple[Reset | None, str | None],
) -> None:
    found = resolve(Memory(refusal=LOST), *override)
    assert found.new_generation
    assert found.memory.refusal is None


@pytest.mark.parametrize(
    ("reset", "why"),
    [
        (None, "there is no checkpoint: starts as the stream is configured"),
        (EARLIEST, "there is no checkpoint: starts at earliest"),
    ],
)
def test_the_first_run_begins_as_it_is_reported(reset: Reset | None, why: str) -> None:
    found = resolve(None, reset, "monday")
    assert (found.new_generation, found.start) == (True, reset)
    assert found.memory.ignored == "monday"
    assert found.why == why


def test_the_same_overrides_again_have_no_effect() -> None:
    first = resolve(None, EARLIEST, "monday")
    again = resolve(first.memory, EARLIEST, "monday")
    assert (again.new_generation, again.memory) == (False, first.memory)
    assert again.why == (
        "--reset and --ignore-checkpoint were applied before: "
        "continues from the checkpoint"
    )


def test_a_run_without_overrides_forgets_none() -> None:
    first = resolve(None, EARLIEST, "monday")
    between = resolve(first.memory)
    assert not resolve(between.memory, EARLIEST, "monday").new_generation


def test_a_label_does_a_reset_again() -> None:
    first = resolve(None, EARLIEST)
    again = resolve(first.memory, Reset.parse("earliest#2"))
    assert (again.new_generation, again.memory.reset) == (True, "earliest#2")


def test_only_the_last_reset_is_remembered() -> None:
    memory = resolve(resolve(None, EARLIEST).memory, LATEST).memory
    assert resolve(memory, EARLIEST).new_generation


def test_two_fresh_overrides_at_once_are_refused() -> None:
    with pytest.raises(MisuseError) as caught:
        resolve(Memory(), EARLIEST, "monday")
    assert str(caught.value) == (
        "--ignore-checkpoint and --reset both set where to begin; "
        "--reset alone sets the checkpoint aside too"
    )


# --- what may be written ---------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "token", "at"),
    [
        ("earliest", "earliest", "earliest"),
        (" Smallest ", "earliest", "earliest"),
        ("LATEST#now", "latest#now", "latest"),
        ("1700000000000", "1700000000000", 1700000000000),
        ("2023-11-14T22:13:20Z", "2023-11-14T22:13:20Z", 1700000000000),
        ("2d", "2d", Ago(172800000)),
        ("2d# monday morning ", "2d#monday morning", Ago(172800000)),
        (
            '{"a": {"1": 5, "0": 3}}',
            '{"offsets":{"a":{"0":3,"1":5}},"version":1}',
            Position({Partition("a", 0): 3, Partition("a", 1): 5}),
        ),
        (
            '{"a#b": {"0": 3}} #again',
            '{"offsets":{"a#b":{"0":3}},"version":1}#again',
            Position({Partition("a#b", 0): 3}),
        ),
        (
            '{"version":1,"offsets":{"a":{"0":3}},"incarnations":{"a":"x"}}',
            '{"incarnations":{"a":"x"},"offsets":{"a":{"0":3}},"version":1}',
            Position({Partition("a", 0): 3}, {Partition("a", 0): "x"}),
        ),
    ],
)
def test_a_reset_is_a_word_a_time_or_a_position(
    text: str, token: str, at: object
) -> None:
    reset = Reset.parse(text)
    assert (reset.token, reset.at) == (token, at)


def test_positions_that_mean_the_same_are_the_same_token() -> None:
    one = Reset.parse('{"a":{"0":1,"1":2}}')
    assert one == Reset.parse('{"version": 1, "offsets": {"a": {"1": 2, "0": 1}}}')


def test_a_reset_may_be_of_one_source() -> None:
    reset = Reset.parse(' orders= {"a=b":{"0":3}} #again')
    assert reset.source == "orders"
    assert reset.token == 'orders={"offsets":{"a=b":{"0":3}},"version":1}#again'
    assert reset.at == Position({Partition("a=b", 0): 3})
    assert Reset.parse('{"a=b":{"0":3}}').source is None
    for wrong in ("orders=", "orders=soon", "a=b=earliest"):
        with pytest.raises(MisuseError, match="is no position"):
            Reset.parse(wrong)


@pytest.mark.parametrize("text", ["", "soon", "#again", '{"a"', '{"a":{"0":1}} x'])
def test_a_reset_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(MisuseError) as caught:
        Reset.parse(text)
    assert caught.value.what == (
        f"--reset {text!r} is no position: earliest, latest, a time such as "
        "2022-08-09T12:31:38Z, a period before now such as 2d, or offsets "
        'such as {"topic": {"0": 23}}'
    )


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{}", "--reset: the position names no partition"),
        (
            '{"version": 7}',
            "--reset: position has version 7, but only versions up to 2 are supported",
        ),
        ('{"a": {"0": -1}}', "--reset: not a position: -1 is not an offset"),
        ("latest#", "--reset: '' is not a label"),
        ("latest#a\nb", "--reset: 'a\\nb' is not a label"),
        ("latest#" + "x" * 201, f"--reset: {'x' * 40!r} is not a label"),
    ],
)
def test_a_reset_reports_the_problem(text: str, what: str) -> None:
    with pytest.raises(MisuseError) as caught:
        Reset.parse(text)
    assert caught.value.what == what
