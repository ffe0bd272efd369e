"""Metrics tell each fault of a GPU once, and nothing that is only in the way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from controller.publish.device_metrics import sick_numbers
from driver.devices.device import Device, Taint
from driver.devices.taints import TAINT_BLOCKED, TAINT_DRIVER, TAINT_XID
from tests.controller.publish.test_offered_numbers import offered


def told(devices: list[Device]) -> list[dict[str, str]]:
    return [dict(one.labels) for one in sick_numbers(devices)]


def test_a_fault_is_told_once_however_many_forms_of_the_gpu_have_it(tmp_path: Path) -> None:
    devices = offered(tmp_path)
    first = [one for one in devices if one.pci == devices[0].pci]
    xid, blocked = Taint(TAINT_XID, "94", "NoSchedule"), Taint(TAINT_BLOCKED, "in-use", "NoSchedule")
    assert len(first) > 1

    (found,) = told([replace(one, taints=(xid, blocked)) for one in first])

    (whole,) = (one for one in first if one.attributes["type"] == "gpu")
    assert found == {
        "uuid": whole.attributes["uuid"],
        "pci_bus_id": str(whole.pci),
        "key": TAINT_XID,
        "value": "94",
        "effect": "NoSchedule",
    }


def test_a_driver_that_went_away_is_told_of_each_gpu(tmp_path: Path) -> None:
    gone = Taint(TAINT_DRIVER, "nvmlInit_v2", "NoSchedule")
    found = told([replace(one, taints=(gone,)) for one in offered(tmp_path)])

    assert [one["key"] for one in found] == [TAINT_DRIVER] * 8
    assert len({one["pci_bus_id"] for one in found}) == 8


def test_gpus_that_are_well_are_not_told_of(tmp_path: Path) -> None:
    assert told(list(offered(tmp_path))) == []
