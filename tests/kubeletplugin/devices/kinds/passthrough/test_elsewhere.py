"""Groups that are half bound elsewhere, and nodes whose GPUs are all at virtual machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from driver.errors import ClaimBlocked
from driver.hardware.inventory import Discovery
from driver.nvml.deadline import Guard
from driver.nvml.pci_address import PciAddress
from tests.kubeletplugin.devices.kinds.passthrough.scene import PassthroughNode

AUDIO = PciAddress.parse("0000:65:00.1")


def test_half_a_group_that_a_virtual_machine_of_somebody_else_uses_is_not_taken(vms: PassthroughNode) -> None:
    vms.bind_by_hand(2)
    vms.machine.add_process(vms.gpus[2], 4711)
    half = vms.drivers()
    with pytest.raises(ClaimBlocked, match="in use"):
        vms.prepare(vms.vm("vm", 2, 3))
    assert vms.drivers() == half


def test_all_gpus_can_be_at_virtual_machines_and_come_back_after_a_restart(tmp_path: Path) -> None:
    node = PassthroughNode(tmp_path, on_disk=True)
    claims = [node.vm("alone", 0), node.vm("board", 1), node.vm("together", 2, 3)]
    for claim in claims:
        node.prepare(claim)
    assert node.listed() == []
    assert node.machine.nvml().session.listed() == []

    node.restart()
    controller = Discovery(node.machine.nvml(), node.sysfs, Guard())

    assert controller.snapshot().gpus == ()
    assert [one.driver for one in controller.snapshot().pci.physical] == ["vfio-pci"] * 4
    assert node.recovered.failed == ()
    for claim in claims:
        assert len(node.prepare(claim)) == 1
    controller.close()
    for claim in claims:
        assert node.unprepare(claim) is None
    assert node.changed() == {}
    assert node.listed() == list(node.gpus)
    minors = [node.machine.state.gpus[pci].minor for pci in node.gpus]
    assert len(set(minors)) == 4
    node.prepare(node.claim("container", *range(4)))
    node.stop()


def test_a_reboot_while_all_gpus_are_at_virtual_machines_ends_every_claim(vms: PassthroughNode) -> None:
    claims = [vms.vm("alone", 0), vms.vm("together", 2, 3)]
    for claim in claims:
        vms.prepare(claim)
    vms.reboot()
    assert vms.changed() == {}
    assert [entry for entry in vms.journal.entries() if entry.holds] == []
    for claim in claims:
        vms.prepare(claim)
        assert vms.unprepare(claim) is None
    assert vms.changed() == {}
