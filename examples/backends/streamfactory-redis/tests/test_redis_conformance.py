"""Every rule of the contract that the claims and the harness allow, a test each."""

from __future__ import annotations

from pathlib import Path

from streamfactory.conformance.suite import ConformanceSuite

from streamfactory_redis.harness import ForeignHarness, RedisHarness


class TestRedis(ConformanceSuite):
    harness = RedisHarness


class TestForeign(ConformanceSuite):
    harness = ForeignHarness
    waivers = Path(__file__).with_name("foreign_waivers.toml")
