"""Level 1 of the contract is frozen: what plug-ins rely on stays as it is."""

from __future__ import annotations

from tests.spi.signatures import FROZEN, lines

from streamfactory.spi import SPI_LEVEL

HOW = "; a plug-in of level 1 breaks: keep it, or raise SPI_LEVEL (docs/spi.md)"


def test_no_signature_of_level_1_goes_or_changes() -> None:
    frozen = FROZEN.read_text(encoding="utf-8").splitlines()
    assert SPI_LEVEL == 1
    assert len(frozen) > 400
    gone = sorted(set(frozen) - set(lines()))
    assert gone == [], f"{gone}{HOW}"


def test_what_is_added_to_level_1_asks_nothing_of_plug_ins() -> None:
    frozen = FROZEN.read_text(encoding="utf-8").splitlines()
    known = {line.removeprefix("class ").split("(")[0] for line in frozen}
    added = [line for line in lines() if line not in frozen]
    abstract = [line for line in added if line.startswith("abstract ")]
    # A field of a class that there was, without a default.
    fields = [
        line
        for line in added
        if ": " in line.split("(")[0]
        and line.split(".")[0] in known
        and " = ..." not in line
    ]
    assert abstract + fields == [], f"{abstract + fields}{HOW}"
