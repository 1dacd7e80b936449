"""Files made to take all memory or all day: each is refused, or read, at once.

The limits are of processor time and of memory, so that a busy machine fails no test.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.proving.commands import Outcome
from tests.proving.tiers import sample

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECONDS = 20
MEMORY = 1 << 30
CLICKS = "[properties]\nstreamType = 'memory'\n"
TOPIC = "'stream.memory.topic.name' = 'clicks'\n"
KEYS = "".join(f"k{i} = 1\n" for i in range(80_000))


@pytest.fixture
def validate(tmp_path: Path) -> Callable[..., Outcome]:
    """Validates one file within the limits."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    def command(name: str, text: str) -> Outcome:
        (tmp_path / name).write_text(text)
        done = subprocess.run(
            [sys.executable, "-m", "streamfactory", "validate", name],
            cwd=tmp_path,
            preexec_fn=limit,
            capture_output=True,
            text=True,
            check=False,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    return command


DEEP = "nested too deeply"
MANY = "more than 20000 values"
LONG = "more than 1024 characters"
NAME = "'stream.memory.topic.name' = "
OPTIONS = "".join(f"option{i} = 1\n" for i in range(10_000))
COLUMNS = ",".join(f"c{i} int" for i in range(80_000))
BOMBS = {
    "header.toml": (f"[{'.'.join('x' * 100_000)}]\n{KEYS[:99_000]}", DEEP),
    "dotted.toml": (f"{'.'.join('x' * 400_000)} = 1\n", DEEP),
    "inline.toml": (f"a = {{{'x.' * 40}x = 1}}", DEEP),
    "tables.toml": (f"a = {'{a = ' * 40}1{'}' * 40}", DEEP),
    "keys.toml": (KEYS, MANY),
    "array.toml": (f"a = [{'[],' * 100_000}]", MANY),
    "quoted.toml": (f'["{"x" * 400_000}"]\nk = 1', LONG),
    "open.toml": ('"""' + '\\"""x' * 150_000 + "\\", "is not TOML"),
    "number.toml": (f"{CLICKS}k = 0x{'f' * 400_000}", "more than 256 bits"),
    "quoted.json": (json.dumps({"x" * 400_000: dict.fromkeys("abcdef")}), LONG),
    "deep.json": ('{"a":' * 90 + "1" + "}" * 90, DEEP),
    "twice.json": ("{" + '"a":1,' * 100_000 + '"a":1}', MANY),
    "keys.properties": ("a\n" * 400_000, MANY),
    "options.toml": (
        CLICKS + OPTIONS,
        "has 10001 properties, more than the maximum of 1000",
    ),
    "digits.toml": (
        f"{CLICKS}'batch.bytes' = '{'1' * 900_000}.1G'",
        "longer than 100 characters",
    ),
    "schema.toml": (f"{CLICKS}schema = '{COLUMNS},c7 int'", "has column 'c7' twice"),
    "pattern.toml": (
        f"{CLICKS}subscribePattern = '((((a{{99}}){{99}}){{99}}){{99}})'",
        "is not a regular expression of RE2: invalid repetition size",
    ),
    "open-reference.toml": (
        f"{CLICKS}{NAME}'{'${env:A' * 100_000}'",
        "without closing }",
    ),
    "long-topic.toml": (
        f"{CLICKS}{NAME}'{'x' * 100_000}'",
        "is longer than 249 characters",
    ),
}


@pytest.mark.parametrize("name", sample(BOMBS, "one more file", keep=8))
def test_file_that_is_no_configuration_is_refused_within_bounds(
    name: str, validate: Callable[..., Outcome]
) -> None:
    text, what = BOMBS[name]
    outcome = validate(name, text)
    assert outcome.status == 2, outcome.err
    assert what in outcome.out
    assert len(outcome.out) < 2_000


def test_offsets_of_very_many_partitions_are_read(
    validate: Callable[..., Outcome],
) -> None:
    offsets = json.dumps({"clicks": {str(i): i for i in range(60_000)}})
    text = f"{CLICKS}{TOPIC}startingOffsets = '{offsets}'\n"
    assert validate("offsets.toml", text) == Outcome(
        0, "offsets (offsets.toml): ok\n", ""
    )


def test_dots_within_text_are_no_tables(validate: Callable[..., Outcome]) -> None:
    dots = "a." * 50 + "a = 1"
    text = f"{CLICKS}{TOPIC}# {dots}\n'stream.meta.doc' = '''\n{dots}'''"
    assert validate("dots.toml", text) == Outcome(0, "dots (dots.toml): ok\n", "")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("${file:/dev/zero}", "the file is in no folder of STREAMFACTORY_SECRETS"),
        ("${env:PATH}" * 80_000, "the value is longer than 1 MiB"),
    ],
    ids=["device", "expansion"],
)
def test_reference_without_end_is_not_resolved(
    value: str, reason: str, validate: Callable[..., Outcome]
) -> None:
    outcome = validate("clicks.toml", f"{CLICKS}{NAME}'{value}'")
    # A warning, as for each reference that only another machine may resolve.
    assert outcome.status == 0, outcome.err
    assert f"cannot be resolved: {reason}" in outcome.out
