"""A record of a reset that cannot be read, or that is another GPU's, does not count."""

from __future__ import annotations

from pathlib import Path

import pytest

from driver.nvml.pci_address import PciAddress
from kubeletplugin.reports.healing.records import HealRecord, HealRecords

GPU = PciAddress(0, 0x8A, 0, 0)
RECORD = HealRecord(str(GPU), persistent=True, healed_boottime_milliseconds=17)


def records(folder: Path) -> HealRecords:
    return HealRecords(folder / "healing", lambda: True)


@pytest.mark.parametrize("text", ["", "{}", "[", '{"pci": 1}', "[" * 100_000, '{"pci": "0000:01:00.0"}'])
def test_what_cannot_be_read_does_not_count(tmp_path: Path, text: str) -> None:
    records(tmp_path).put(RECORD)
    (tmp_path / f"healing/{GPU}.json").write_text(text)
    assert records(tmp_path).records() == ()
    assert records(tmp_path).get(GPU) == HealRecord(str(GPU))
