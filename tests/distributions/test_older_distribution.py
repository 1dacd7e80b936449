"""The distribution of an author from before passes the kit of today, but for a defect.

``data`` has the wheel of ``streamfactory-redis`` as it was on 22 November 2026, when
level 1 of the contract was frozen. Where there is a tag, the wheel of the last one is
built, and tried as well.
"""

from __future__ import annotations

import subprocess
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.distributions.installing import ROOT, Installed
from tests.distributions.journeys import LACKING, RIGHTS_AND_BOUNDS, run_kit
from tests.distributions.releases import last_tag, wheel_of
from tests.kafka.jars import Unavailable
from tests.proving.skipping import skip_or_fail

if TYPE_CHECKING:
    from collections.abc import Sequence

[WHEEL] = (Path(__file__).parent / "data").glob("streamfactory_redis-*.whl")
REDIS = "examples/backends/streamfactory-redis"
RENAMED = "the harness streamfactory_redis.harness"
"""How the warning begins that names what `RedisHarness.address` has to be called."""
DEFECTS = (
    "a_creation_that_loses_its_server_can_be_repeated",
    "a_deletion_that_loses_its_server_can_be_repeated",
)
"""Newer cases that find a defect in the wheel of 22 November: half a topic is left."""


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
        options = {"PYTHONWARNINGS": f"error,ignore:{RENAMED}"}
        waivers = _waivers(tmp_path, DEFECTS if wheel is WHEEL else ())
        kit = run_kit(
            older, "redis", tmp_path, "--quick", "--waivers", str(waivers), **options
        )
        # A waived case that passes fails as well.
        assert kit.failed == []
        assert kit.passed > 100
        reasons = {r for r in kit.skipped if not r.startswith("slow")}
        assert reasons <= LACKING | RIGHTS_AND_BOUNDS | {
            "no ability: freeze, thaw",
            "no ability: write_messages",
            "no ability: write_values",
            "the harness states no largest_value",
        }


def _waivers(folder: Path, cases: Sequence[str]) -> Path:
    path = folder / "waivers.toml"
    tomorrow = datetime.now(UTC).date() + timedelta(days=1)
    path.write_text(
        "".join(
            f'[[waiver]]\ncase = "{case}"\nreason = "half a topic is left"\n'
            f"expires = {tomorrow.isoformat()}\n"
            for case in cases
        )
    )
    return path


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
