"""What a claim has outlives the plugin and the NVIDIA driver, and others hear how it is."""

from pathlib import Path

import pytest

from tests.kubeletplugin.devices.kinds.passthrough.scene import PassthroughNode
from tests.plugin import ClaimRef


def health_of(node: PassthroughNode) -> dict[str, str]:
    """What the kubelet hears of each device."""
    return {device: told.health.word for device, told in node.told_health().items()}


def test_a_look_while_a_gpu_is_handed_over_says_nothing_of_the_claim(vms: PassthroughNode) -> None:
    """Else its status says until the next look that the GPU is not bound, and the pod runs."""
    claim = vms.vm("vm", 1)
    told: dict[str, dict[str, str]] = {}
    vms.on_step = lambda step: told.update({step: health_of(vms)})

    vms.prepare(claim)

    device = told["spec written"].keys() - told["begun"].keys()
    assert len(device) == 1, "it is told of when it is handed over"
    assert told["spec written"].items() >= {(one, "Healthy") for one in device}


def test_a_gpu_that_a_claim_has_is_held_and_not_lost_until_it_is_taken_out(vms: PassthroughNode) -> None:
    assert set(health_of(vms).values()) == {"Healthy"}
    claim = vms.prepared_vm("vm", 0)
    found = health_of(vms)
    assert found[vms.device(0)] == "Healthy"
    assert vms.whole(0) not in found
    vms.unprepare(claim)
    assert health_of(vms)[vms.whole(0)] == "Healthy"
    vms.prepare(claim)
    (vms.sysfs / "bus/pci/devices" / str(vms.gpus[0])).unlink()
    assert health_of(vms)[vms.device(0)] == "Unhealthy"


def test_the_metadata_of_the_device_have_its_address_its_group_and_its_node(vms: PassthroughNode) -> None:
    claim = vms.prepared_vm("vm", 2, 3)
    assert metadata(vms, claim) == {
        "resource.kubernetes.io/pciBusID": "0000:ca:00.0",
        "iommuGroup": 57,
        "vfioNode": "/dev/vfio/57",
    }


def metadata(node: PassthroughNode, ref: ClaimRef) -> dict[str, object]:
    """What the kind tells of the claim's first device."""
    entry = node.entry(ref)
    return dict(node.kinds.of(entry.devices[0]).metadata(entry.devices[0]))


def test_a_gpu_of_another_model_is_not_the_one_that_was_prepared(vms: PassthroughNode) -> None:
    claim = vms.prepared_vm("vm", 0)
    Path(vms.sysfs / "bus/pci/devices" / str(vms.gpus[0]) / "device").write_text("0x20b7\n")
    with pytest.raises(Exception, match="is not the GPU that was prepared"):
        vms.prepare(claim)
