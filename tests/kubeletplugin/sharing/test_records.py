"""What was changed on a GPU is remembered until it is put back, whatever happens to the file meanwhile."""

import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driver.devices.sharing import Strategy
from kubeletplugin.sharing.records import UNKNOWN, SharingRecord, SharingRecords
from tests.examples import examples
from tests.gpus import ComputeMode

GROUP, PCI, OTHER = "gpu-0000-01-00-0", "0000:01:00.0", "0000:02:00.0"
PART = f"{GROUP}-mig-1g-10gb-6"
RECORD = SharingRecord(GROUP, "MPS", (PCI, OTHER), {PCI: "prohibited"}, "Default", True, True)
ASSUMED = SharingRecord(GROUP, "MPS", (PCI,), {PCI: "default"}, UNKNOWN, daemon=True)


@pytest.fixture
def records(tmp_path: Path) -> SharingRecords:
    return SharingRecords(tmp_path / "sharing", lambda: "")


def file(tmp_path: Path, group: str = GROUP) -> Path:
    return tmp_path / "sharing" / f"{group}.json"


written = st.builds(
    SharingRecord,
    st.just(GROUP),
    st.sampled_from(get_args(Strategy)),
    st.just((PCI, OTHER)),
    st.dictionaries(st.sampled_from([PCI, OTHER]), st.sampled_from(get_args(ComputeMode))),
    st.sampled_from(["Default", "Short", UNKNOWN]),
    st.booleans(),
    st.booleans(),
)


@settings(max_examples=examples(25), deadline=None)
@given(written)
def test_every_record_reads_back(record: SharingRecord) -> None:
    with TemporaryDirectory() as folder:
        SharingRecords(Path(folder), lambda: "").put(record)
        read = SharingRecords(Path(folder), lambda: "")
        assert read.get(GROUP) == record
        assert read.on([PCI]) == read.on([OTHER]) == (record,), "of any of its GPUs"


def test_a_record_of_an_earlier_load_of_the_driver_counts_for_nothing(
    tmp_path: Path, records: SharingRecords
) -> None:
    """Another load has put everything back; what others see of it does not remove it without the locks."""
    later = SharingRecords(tmp_path / "sharing", lambda: "later")
    records.put(replace(RECORD, driver_generation="earlier"))
    assert len(later.all()) == 1
    assert file(tmp_path).exists()
    assert later.get(GROUP) is None
    assert not file(tmp_path).exists()


WRONG = {
    "cut": b'{"group":"gpu-00',
    "a list": b"[]",
    "binary": b"\xff\xfe\x00",
    "of another group": json.dumps({"group": PART}).encode(),
}
CHANGED = {
    "a strategy that there is not": ("strategy", "Luck"),
    "a mode that there is not": ("compute_modes", {PCI: "slow"}),
    "modes that are a list": ("compute_modes", [PCI]),
    "no GPU": ("gpus", []),
    "no address": ("gpus", ["GPU-1"]),
    "a mode of another GPU": ("compute_modes", {"0000:09:00.0": "default"}),
}


def contents() -> dict[str, bytes]:
    good: dict[str, object] = {"group": GROUP, "strategy": "MPS", "interval": "Default"}
    good |= {"gpus": [PCI], "compute_modes": {PCI: "default"}, "daemon": True, "applied": True}
    return WRONG | {name: json.dumps(good | {key: value}).encode() for name, (key, value) in CHANGED.items()}


@pytest.mark.parametrize("content", contents().values(), ids=contents().keys())
def test_a_record_that_cannot_be_read_is_put_aside_and_the_most_is_assumed(
    tmp_path: Path, records: SharingRecords, content: bytes
) -> None:
    file(tmp_path).write_bytes(content)
    assert (records.on([PCI]), records.on([OTHER])) == ((ASSUMED,), ()), "it says so by its name"
    assert records.all() == (ASSUMED,), "who only looks changes nothing"
    assert file(tmp_path).read_bytes() == content
    assert records.get(GROUP) == ASSUMED
    assert file(tmp_path).with_suffix(".unreadable").read_bytes() == content
    assert SharingRecords(tmp_path / "sharing", lambda: "").get(GROUP) == ASSUMED, "it is written down"


def test_of_a_partition_no_compute_mode_is_assumed(tmp_path: Path, records: SharingRecords) -> None:
    """It has none, and that of its GPU is another group's."""
    file(tmp_path, PART).write_bytes(b"{")
    found = records.get(PART)
    assert found is not None
    assert (found.compute_modes, found.gpus, found.daemon) == ({}, (PCI,), True)


def test_of_what_is_no_device_nothing_is_assumed(tmp_path: Path, records: SharingRecords) -> None:
    file(tmp_path, "gpu-of-nobody").write_bytes(b"{")
    assert (records.all(), records.get("gpu-of-nobody")) == ((), None)
    assert not file(tmp_path, "gpu-of-nobody").exists()
    assert records.assume("gpu-of-nobody") is None
