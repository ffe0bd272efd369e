"""A reset by the kubelet plugin ends the faults of before, and none of later."""

from __future__ import annotations

import time

import pytest

from controller.health.incident_store import EndedByReset, IncidentStore, machine_uptime_seconds
from driver.devices.node_state import Healed, NodeState
from driver.devices.region import Region
from driver.health.xid_verdicts import Incident
from driver.nvml.pci_address import PciAddress

PCI = PciAddress.parse("0000:8a:00.0")
OTHER = PciAddress.parse("0000:8b:00.0")


def sick(incidents: IncidentStore) -> set[PciAddress]:
    return {verdict.scope.pci for verdict in incidents.verdicts()}


def healed(*gpus: tuple[PciAddress, int]) -> NodeState:
    """What the plugin tells of GPUs that were reset so many seconds from now."""
    now_milliseconds = int(machine_uptime_seconds() * 1000)
    return NodeState(healed=tuple(Healed(pci, now_milliseconds + seconds * 1000) for pci, seconds in gpus))


def test_a_reset_ends_the_faults_of_its_gpu_alone() -> None:
    incidents = IncidentStore()
    for pci in (PCI, OTHER):
        incidents.report(Incident(Region(pci), 95))
    EndedByReset(incidents).plugin_reports(healed((PCI, 60)))
    assert sick(incidents) == {OTHER}


def test_a_fault_of_after_the_reset_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    incidents = IncidentStore()
    resets = EndedByReset(incidents)
    incidents.report(Incident(Region(PCI), 95))
    reset = healed((PCI, -60))
    set_back = time.time() - 3600
    monkeypatch.setattr(time, "time", lambda: set_back)
    resets.plugin_reports(reset)
    assert sick(incidents) == {PCI}


def test_the_same_reset_is_told_once() -> None:
    incidents = IncidentStore()
    resets = EndedByReset(incidents)
    once = healed((PCI, 60))
    resets.plugin_reports(once)
    incidents.report(Incident(Region(PCI), 95))
    resets.plugin_reports(once)
    assert sick(incidents) == {PCI}
    resets.plugin_reports(healed((PCI, 90)))
    assert sick(incidents) == set()
