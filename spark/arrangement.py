"""The internal option by which a pipeline configures its source and sinks."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from streamfactory.wiring.config.definition import Property, StreamDefinition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfactory.spark.checkpoints import Ledger

OPTION: Final = "streamfactory.arrangement"
"""Internal option, not for users: JSON that `Arrangement` parses."""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The stream and settings of the pipeline.

    As JSON, because Spark lower-cases options.
    """

    definition: StreamDefinition
    drain: str | None = None
    """A file on the driver. Once it exists, the source plans no further rows."""
    available_now: bool = False
    """Whether the source plans up to the latest offsets of its start, and no further.
    For a PySpark without `Trigger.AvailableNow`."""
    sink: str | None = None
    """The sink's name within its pipeline."""
    streaming: bool = False
    """Whether a batch write is an epoch of a streaming query."""
    ledger: Ledger | None = None
    """Where commits of the sink are recorded; None if they are not."""
    source: str | None = None
    """The source's id within its pipeline."""
    job: str | None = None
    """The job of the pipeline, whose rate the source follows."""
    controls: str | None = None
    """The folder of the states of jobs, on the driver."""

    @property
    def draining(self) -> bool:
        """Whether the source plans no further rows."""
        return self.drain is not None and Path(self.drain).exists()

    def to_options(self, **more: str) -> dict[str, str]:
        """As options of a Spark reader or writer."""
        found = self.definition
        plain = {
            "name": found.name,
            "origin": found.origin,
            "properties": [
                [p.key, p.text, p.origin, p.folder] for p in found.properties
            ],
            "drain": self.drain,
            "available_now": self.available_now,
            "sink": self.sink,
            "streaming": self.streaming,
            "ledger": None if self.ledger is None else asdict(self.ledger),
            "source": self.source,
            "job": self.job,
            "controls": self.controls,
        }
        return {**more, OPTION: json.dumps(plain)}

    @classmethod
    def take(cls, options: dict[str, str]) -> Self | None:
        """Remove the arrangement from options and parse it; None if there is none."""
        text = next((options.pop(k) for k in [*options] if k.lower() == OPTION), None)
        if text is None:
            return None
        plain: Mapping[str, Any] = json.loads(text)
        definition = StreamDefinition(
            plain["name"],
            tuple(Property(*one) for one in plain["properties"]),
            origin=plain["origin"],
        )
        ledger = None
        if plain["ledger"] is not None:
            # Imported here: only sinks of pipelines have one.
            from streamfactory.spark.checkpoints import Ledger

            ledger = Ledger(**plain["ledger"])
        return cls(
            definition,
            plain["drain"],
            plain["available_now"],
            plain["sink"],
            plain["streaming"],
            ledger,
            plain["source"],
            plain["job"],
            plain["controls"],
        )
