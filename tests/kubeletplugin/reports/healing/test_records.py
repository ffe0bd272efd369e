"""What is remembered of a reset is read again, and a file that cannot be read does not count."""

from __future__ import annotations

from pathlib import Path

import pytest

from driver.nvml.pci_address import PciAddress
from kubeletplugin.reports.healing.records import HealRecord, HealRecords

GPU = PciAddress(0, 0x8A, 0, 0)
RECORD = HealRecord(str(GPU), persistent=True, healed_boottime_milliseconds=17)


def records(folder: Path) -> HealRecords:
    return HealRecords(folder / "healing", lambda: True)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    assert records(tmp_path).get(GPU) == HealRecord(str(GPU))
    records(tmp_path).put(RECORD)
    assert records(tmp_path).get(GPU) == RECORD
    assert records(tmp_path).records() == (RECORD,)


@pytest.mark.parametrize("text", ["", "{}", "[", '{"pci": 1}', "[" * 100_000])
def test_what_cannot_be_read_does_not_count(tmp_path: Path, text: str) -> None:
    records(tmp_path).put(RECORD)
    (tmp_path / f"healing/{GPU}.json").write_text(text)
    assert records(tmp_path).records() == ()
    assert records(tmp_path).get(GPU) == HealRecord(str(GPU))


def test_a_record_of_another_gpu_does_not_count(tmp_path: Path) -> None:
    records(tmp_path).put(RECORD)
    (tmp_path / f"healing/{GPU}.json").rename(tmp_path / "healing/0000:01:00.0.json")
    assert records(tmp_path).records() == ()
