"""Compiled parts of streamfactory, which it loads where they are installed."""

from __future__ import annotations

from pathlib import Path
from typing import Final

KAFKA: Final = Path(__file__).with_name("kafka.so")
"""Messages of librdkafka from and into Arrow buffers; a plug-in of librdkafka."""
