"""Rules that one module owns: no other module codes them again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streamfactory.spi import PERIOD, SIZE, Option
from streamfactory.wiring.options.shared import SHARED_OPTIONS
from streamfactory.wiring.options.vocabulary import FRAMEWORK_OPTIONS
from streamfactory.wiring.plugins.manager import PluginManager

ROOT = Path(__file__).parents[2]
FOLDERS = sorted({path.parent for path in ROOT.glob("*/__init__.py")})

OWNERS = {
    "the policy after a loss is read": (
        r"""config(\[|\.get\()"out\.of\.range\"""",
        {"wiring/reading/losses.py", "wiring/config/guarantees.py"},
    ),
    "two incarnations are compared": (
        r"""None not in \(\w+, [\w.]*(found|incarnation)\)""",
        {"wiring/reading/losses.py"},
    ),
    "a position of another stream is refused": (
        "not of this stream",
        {"wiring/reading/metadata.py"},
    ),
    "a pause has jitter": (r"random\.(uniform|random)\(", {"spi/backoff.py"}),
    "a stream is configured for use": (
        r"(?<!def )\bconfigure\(",
        {"wiring/config/loading.py"},
    ),
    "the steps of a configuration are run": (
        r"(?<!def )\b(classify|resolve_values|check_rules)\(",
        {"wiring/config/configure.py"},
    ),
    "an author's error is translated and raised": (
        r"translate\(error.*\n\s+if found is error",
        {"wiring/core/guard.py"},
    ),
    "a consumer's answer is checked": (
        "rule R[15]: ",
        {"wiring/reading/batches.py"},
    ),
    "dead letters are written": (
        r"\bDiversion\(",
        {"wiring/writing/diverting.py", "transfer/copying.py"},
    ),
}
"""For each rule what its code looks like, and the modules that may have such code."""


@pytest.mark.parametrize("rule", OWNERS)
def test_a_rule_is_coded_by_its_owner_alone(rule: str) -> None:
    pattern, owners = OWNERS[rule]
    found = {
        str(path.relative_to(ROOT))
        for folder in FOLDERS
        if folder.name not in ("conformance", "tests")
        for path in folder.rglob("*.py")
        if re.search(pattern, path.read_text(encoding="utf-8"))
    }
    assert found == owners, rule


_UNIT = r"\.(millis|ms|bytes)(\.|$)"
OF_OTHERS = {
    "maxTriggerDelay",
    "realtime.segment.flush.threshold.time",
    "realtime.segment.flush.threshold.segment.size",
}
"""Keys of Spark and of Pinot, whose units are in their documentation."""


def _own_options() -> list[Option]:
    manager = PluginManager()
    found = [*FRAMEWORK_OPTIONS.values(), *SHARED_OPTIONS.values()]
    for name in ("memory", "file", "flight", "socket", "zeromq", "kafka"):
        backend = manager.backend(name)
        found += backend.options
        if backend.server is not None:
            found += backend.server.OPTIONS
    return found


def test_options_of_time_and_size_carry_their_unit() -> None:
    options = [one for one in _own_options() if one.type in (PERIOD, SIZE)]
    assert len(options) > 30
    without = {one.key for one in options if not re.search(_UNIT, one.key)}
    assert without == OF_OTHERS
