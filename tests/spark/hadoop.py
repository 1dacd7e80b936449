"""Hadoop's client of object stores, for sessions of Spark that write to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.kafka.jars import Unavailable, jars
from tests.objects.server import OWNER
from tests.proving.skipping import skip_or_fail

if TYPE_CHECKING:
    from tests.objects.server import ObjectServer


def hadoop(server: ObjectServer) -> dict[str, str]:
    """The configuration of a session that reaches the server as ``s3a://``."""
    try:
        found = jars("s3a")
    except Unavailable as reason:
        skip_or_fail(str(reason))
    settings = {
        "endpoint": server.endpoint,
        "endpoint.region": "us-east-1",
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
        "access.key": OWNER.key,
        "secret.key": OWNER.secret,
    }
    return {
        "spark.jars": ",".join(map(str, found)),
        **{f"spark.hadoop.fs.s3a.{key}": value for key, value in settings.items()},
    }
