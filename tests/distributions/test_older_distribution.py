"""The distribution of an author from before passes the kit of today.

``data`` has the wheel of ``streamfactory-redis`` as it was on 22 November 2026, when
level 1 of the contract was frozen.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from tests.distributions.installing import Installed
from tests.distributions.journeys import LACKING, run_kit
from tests.kafka.jars import Unavailable
from tests.proving.skipping import skip_or_fail

[WHEEL] = (Path(__file__).parent / "data").glob("streamfactory_redis-*.whl")
RENAMED = "the harness streamfactory_redis.harness"
"""How the warning begins that names what `RedisHarness.address` has to be called."""


@pytest.mark.long("the kit")
def test_a_backend_of_22_november_passes_the_kit_without_another_warning(
    tmp_path: Path,
) -> None:
    site = tmp_path / "site"
    with zipfile.ZipFile(WHEEL) as archive:
        archive.extractall(site)
    try:
        older = Installed(site, {}).with_server("redis")
    except Unavailable as reason:
        skip_or_fail(str(reason))
    warnings = f"error,ignore:{RENAMED}"
    kit = run_kit(older, "redis", tmp_path, "--quick", PYTHONWARNINGS=warnings)
    assert kit.failed == []
    assert kit.passed > 100
    assert {r for r in kit.skipped if not r.startswith("slow")} <= LACKING | {
        "no ability: write_messages",
        "the harness states no largest_value",
    }
