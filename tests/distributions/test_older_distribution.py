"""The distribution of an author from before passes the kit of today.

``data`` has the wheel of ``streamfactory-redis`` as it was on 22 November 2026, when
level 1 of the contract was frozen. Where there is a tag, the wheel of the last one is
built, and tried as well.
"""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest
from tests.distributions.installing import ROOT, Installed
from tests.distributions.journeys import LACKING, run_kit
from tests.distributions.releases import last_tag, wheel_of
from tests.kafka.jars import Unavailable
from tests.proving.skipping import skip_or_fail

[WHEEL] = (Path(__file__).parent / "data").glob("streamfactory_redis-*.whl")
REDIS = "examples/backends/streamfactory-redis"
RENAMED = "the harness streamfactory_redis.harness"
"""How the warning begins that names what `RedisHarness.address` has to be called."""


@pytest.mark.long("the kit")
def test_a_backend_of_22_november_passes_the_kit_without_another_warning(
    tmp_path: Path,
) -> None:
    wheels = [WHEEL]
    if (tag := last_tag(ROOT)) is not None:
        wheels.append(wheel_of(ROOT, tag, REDIS, tmp_path / "tag"))
    for number, wheel in enumerate(wheels):
        folder = tmp_path / str(number)
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        try:
            older = Installed(folder, {}).with_server("redis")
        except Unavailable as reason:
            skip_or_fail(str(reason))
        warnings = f"error,ignore:{RENAMED}"
        kit = run_kit(older, "redis", tmp_path, "--quick", PYTHONWARNINGS=warnings)
        assert kit.failed == []
        assert kit.passed > 100
        assert {r for r in kit.skipped if not r.startswith("slow")} <= LACKING | {
            "no ability: write_messages",
            "no ability: write_values",
            "the harness states no largest_value",
        }


def test_the_package_of_a_tag_is_built(tmp_path: Path) -> None:
    clone = tmp_path / "clone"

    def git(*words: str) -> None:
        subprocess.run(["git", *words], cwd=tmp_path, check=True, capture_output=True)

    git("clone", "--quiet", "--depth=1", "--no-tags", ROOT.as_uri(), str(clone))
    assert last_tag(clone) is None
    git("-C", str(clone), "tag", "v0.0.1")
    assert last_tag(clone) == "v0.0.1"
    wheel = wheel_of(clone, "v0.0.1", REDIS, tmp_path / "tag")
    with zipfile.ZipFile(wheel) as archive:
        assert "streamfactory_redis/backend.py" in archive.namelist()
