"""What a whole GPU says of itself, and which GPUs are not offered."""

from dataclasses import replace

import pytest

from driver.devices.taints import TAINT_LOST
from driver.hardware.gpu import Reason, UnreadGpu
from driver.policy.offers import tainted_offers
from tests.gpus import (
    Gpu,
    GpuPolicy,
    HealthRules,
    Inventory,
    NodeConfig,
    PciAddress,
    Problem,
    Rule,
    Version,
    node_offers,
)
from tools.conformance.nodes.mig_nodes import inventory as looked_at

FIRST, SECOND = PciAddress.parse("0000:1b:00.0"), PciAddress.parse("0000:43:00.0")
H100 = replace(looked_at("hgx-h100", "delivered").gpus[0], mig=None)
OTHER_H100 = replace(H100, pci=SECOND, uuid="GPU-2", minor=0, index=1, numa_node=1)
HGX = Inventory((H100, OTHER_H100), "550.163.01", "12.4")


def test_an_h100_of_an_hgx_says_everything_that_is_known_of_it() -> None:
    device = node_offers(HGX).devices[0]

    assert device.name == "gpu-0000-1b-00-0"
    assert device.attributes == {
        "type": "gpu",
        "uuid": "GPU-46f0a2e8-743c-5a04-880a-b4099fd6742d",
        "productName": "NVIDIA H100 80GB HBM3",
        "brand": "Nvidia",
        "architecture": "Hopper",
        "cudaComputeCapability": Version("9.0.0"),
        "driverVersion": Version("550.163.1"),
        "cudaDriverVersion": Version("12.4.0"),
        "addressingMode": "HMM",
        "resource.kubernetes.io/pciBusID": "0000:1b:00.0",
        "resource.kubernetes.io/pcieRoot": "pci0000:15",
        "resource.kubernetes.io/numaNode": 0,
        "index": 0,
        "numaNode": 0,
        "nvlinkDomain": "nvlink-0000-1b-00-0",
        "nvlinkMesh": "mesh-0000-1b-00-0",
        "nvlinkPeers": "1",
        "nvlinkPeerCount": 1,
        "nvlinkPeerLinks": "18",
        "pcieSwitches": "19:00.0",
        "cpuAffinity": "0-55,112-167",
        "migCapable": True,
        "sharing": "none",
        "memoryIsolation": "hardware",
        "virtualization": "none",
    }
    assert device.capacity == {"memory": 81559 * 2**20}
    assert device.taints == ()


def test_what_is_unknown_is_absent() -> None:
    bare = Inventory((Gpu(pci=FIRST, uuid="GPU-1", minor=0, index=0),))

    [device] = node_offers(bare).devices

    assert device.attributes == {
        "type": "gpu",
        "uuid": "GPU-1",
        "resource.kubernetes.io/pciBusID": "0000:1b:00.0",
        "index": 0,
        "sharing": "none",
        "memoryIsolation": "hardware",
    }
    assert device.capacity == {}


def test_a_gpu_with_a_problem_is_offered_as_one_without() -> None:
    lost = replace(H100, problems=(Problem("nvmlDeviceGetUUID", "lost", "it is gone"),))
    assert node_offers(Inventory((lost, OTHER_H100))) == node_offers(Inventory((H100, OTHER_H100)))


def test_the_taints_of_a_check_hit_the_sick_gpu_alone_with_the_effect_that_the_admin_wants() -> None:
    lost = replace(H100, problems=(Problem("nvmlDeviceGetUUID", "lost", "it is gone"),))
    rules = NodeConfig(health=HealthRules(evict=frozenset({"lost"})))

    for config, effect in ((None, "NoSchedule"), (rules, "NoExecute")):
        sick, well = tainted_offers(Inventory((lost, OTHER_H100)), config).devices
        assert [(taint.key, taint.effect) for taint in sick.taints] == [(TAINT_LOST, effect)]
        assert well.taints == ()


@pytest.mark.parametrize(
    ("pci", "reason", "effect"),
    [(FIRST, "lost", "NoExecute"), (FIRST, "failing", "NoSchedule"), (None, "lost", "NoSchedule")],
)
def test_only_the_faults_that_an_admin_names_evict_from_a_gpu_in_doubt(
    pci: PciAddress | None, reason: Reason, effect: str
) -> None:
    rules = NodeConfig(health=HealthRules(evict=frozenset({"lost"})))
    problems = (Problem("nvmlX", reason, "it is so"),)
    unanswered = replace(H100, problems=problems, unanswered=frozenset({"mig_mode"}))
    for inventory in (
        Inventory(() if pci is None else (unanswered,)),
        Inventory(unread=(UnreadGpu(pci, problems),)),
    ):
        for doubt in node_offers(inventory, rules).doubts:
            assert [taint.effect for taint in doubt.taints] == [effect]


def test_a_rule_hides_a_gpu_and_one_that_fails_keeps_it_back() -> None:
    hide_first = NodeConfig((Rule('gpu.pciBusID == "0000:1b:00.0"', GpuPolicy("hidden")),))
    broken = NodeConfig((Rule("gpu.vgpuOfTheFuture == 1", GpuPolicy()),))

    assert [device.pci for device in node_offers(HGX, hide_first).devices] == [SECOND]
    offers = node_offers(HGX, broken)
    assert offers.devices == ()
    assert all("node configuration" in withheld.reason for withheld in offers.withheld)


def test_the_order_is_that_of_the_bus() -> None:
    backwards = Inventory((OTHER_H100, H100))

    assert [device.pci for device in node_offers(backwards).devices] == [FIRST, SECOND]


@pytest.mark.parametrize(("profile", "isolation"), [("A100-10C", None), ("A100-1-5C", "hardware")])
def test_a_vgpu_isolates_memory_where_it_lies_on_an_instance(profile: str, isolation: str | None) -> None:
    guest = replace(H100, virtualization="vgpu", vgpu_profile=profile, mig_capable=False, mig=None)
    [device] = node_offers(Inventory((guest,))).devices
    assert device.attributes.get("memoryIsolation") == isolation


def test_a_rule_that_asks_for_what_was_never_told_decides_nothing() -> None:
    rules = NodeConfig(
        (Rule("has(gpu.brand) && gpu.brand == 'Tesla'", GpuPolicy("hidden")), Rule(None, GpuPolicy()))
    )
    unanswered = replace(H100, brand=None, unanswered=frozenset({"brand"}))
    found = node_offers(Inventory((unanswered, OTHER_H100)), rules)
    assert [device.pci for device in found.devices] == [SECOND]
    assert [(doubt.pci, doubt.whole) for doubt in found.doubts] == [(FIRST, True)]
    assert "brand" in found.withheld[0].reason
    [doubt] = node_offers(Inventory((unanswered,)), NodeConfig((Rule("gpu.index == 0", GpuPolicy()),))).doubts
    assert not doubt.whole
