"""Which GPUs are offered to virtual machines, beside what, and why one is not."""

from __future__ import annotations

import pytest

from driver.devices.region import Region
from driver.hardware.functions import PciFunction
from driver.kinds.passthrough.kind import (
    HANDED_OUT_BY_FUNCTIONS,
    IN_A_VGPU,
    NO_IOMMU,
    PASSTHROUGH,
    VIRTUAL_FUNCTIONS_ON,
)
from driver.kinds.whole import MODE_ON
from driver.nvml.pci_address import PciAddress
from driver.policy.offers import HIDDEN_BY_RULE, Offers
from tests.driver.kinds.passthrough.seen_nodes import (
    AUDIO,
    BRIDGE,
    FIRST,
    NETWORK,
    OTHER,
    SECOND,
    SOUND,
    function,
    gpu,
    node,
    offered,
    reasons,
)

ALONE, BESIDE = "offer: passthrough", "passthrough: true"
ONE, TWO = "gpu-0000-1b-00-0", "gpu-0000-43-00-0"
VIRTUAL = [PciAddress.parse(f"0000:1b:00.{number}") for number in (4, 5)]


def names(offers: Offers) -> list[str]:
    return [device.name for device in offers.devices]


def test_without_a_word_of_the_configuration_no_gpu_is_offered_to_virtual_machines() -> None:
    assert names(offered(node(function(FIRST)))) == [ONE]


def test_passthrough_alone_has_no_counters_and_no_other_form() -> None:
    found = offered(node(function(FIRST), function(SECOND)), ALONE)
    assert names(found) == [f"{ONE}-vfio", f"{TWO}-vfio"]
    assert found.counter_sets == ()
    assert found.withheld == ()


def test_beside_the_whole_gpu_one_counter_says_who_has_it() -> None:
    found = offered(node(function(FIRST), function(SECOND)), BESIDE)
    assert names(found) == [TWO, ONE, f"{TWO}-vfio", f"{ONE}-vfio"]
    assert {one.name: dict(one.counters) for one in found.counter_sets} == {ONE: {"gpu": 1}, TWO: {"gpu": 1}}
    assert {(one.name, one.counter_set, tuple(one.consumes)) for one in found.devices} == {
        (name, gpu_name, ("gpu",)) for gpu_name in (ONE, TWO) for name in (gpu_name, f"{gpu_name}-vfio")
    }


def test_beside_shares_alone_counters_keep_the_two_apart() -> None:
    found = offered(node(function(FIRST)), f"shared: {{strategy: TimeSlicing, shares: 4}}, {BESIDE}")
    assert names(found) == [f"{ONE}-ts-4", f"{ONE}-vfio"]
    assert {one.counter_set for one in found.devices} == {ONE}


def test_where_sharing_is_not_possible_passthrough_is_left() -> None:
    old = gpu(FIRST, cuda_compute_capability="6.1")
    found = offered(node(function(FIRST), told=(old,)), f"shared: {{strategy: MPS, shares: 4}}, {BESIDE}")
    assert names(found) == [f"{ONE}-vfio"]
    assert list(reasons(found)) == ["0000:1b:00.0 shared"]


def test_a_gpu_without_the_partitions_of_its_layout_is_left_to_virtual_machines() -> None:
    found = offered(node(function(FIRST)), f"mig: {{layout: all-balanced}}, {BESIDE}")
    assert names(found) == [f"{ONE}-vfio"]
    assert reasons(found) == {"0000:1b:00.0 partitions": "it has no MIG, so it cannot be partitioned"}


@pytest.mark.parametrize(
    ("functions", "reason"),
    [
        ([function(FIRST, iommu_group=None)], NO_IOMMU),
        ([function(FIRST, virtual=(VIRTUAL[0],), total_virtual=16)], VIRTUAL_FUNCTIONS_ON),
        (
            [
                function(FIRST),
                function(OTHER, vendor_id=0x8086, class_code=NETWORK, driver="ice", iommu_group=27),
            ],
            "its IOMMU group 27 also has 0000:1b:00.2 (ice), which the node would lose",
        ),
    ],
)
def test_what_cannot_be_passed_through_says_why_and_keeps_its_other_forms(
    functions: list[PciFunction], reason: str
) -> None:
    beside = offered(node(*functions), BESIDE)
    assert names(beside) == [ONE]
    assert beside.counter_sets == ()
    assert reasons(beside) == {"0000:1b:00.0 passthrough": reason}
    alone = offered(node(*functions), ALONE)
    assert names(alone) == []
    assert reasons(alone) == {"0000:1b:00.0": reason}


@pytest.mark.parametrize(
    "beside",
    [
        function(AUDIO, class_code=SOUND, driver="snd_hda_intel", iommu_group=27),
        function(OTHER, vendor_id=0x8086, class_code=BRIDGE, driver="pcieport", iommu_group=27),
        function(OTHER, vendor_id=0x8086, class_code=NETWORK, driver=None, iommu_group=27),
        function(OTHER, vendor_id=0x8086, class_code=NETWORK, driver="vfio-pci", iommu_group=27),
    ],
    ids=["the GPU's own audio", "a bridge", "bound to nothing", "bound to vfio"],
)
def test_what_the_node_does_not_lose_goes_with_the_gpu(beside: PciFunction) -> None:
    assert f"{ONE}-vfio" in names(offered(node(function(FIRST), beside), ALONE))


@pytest.mark.parametrize("driver", [None, "vfio-pci", "nvgrace_gpu_vfio_pci", "nvgrace-gpu-vfio-pci"])
def test_a_gpu_that_vfio_or_nobody_has_is_offered_to_virtual_machines_alone(driver: str | None) -> None:
    found = offered(node(function(FIRST, driver=driver)), BESIDE)
    assert names(found) == [f"{ONE}-vfio"]
    assert (found.counter_sets, found.withheld, found.doubts) == ((), (), ())


@pytest.mark.parametrize(
    ("driver", "reason"),
    [
        ("nouveau", "the kernel driver nouveau uses it"),
        ("xvfiox", "the kernel driver xvfiox uses it"),
        ("nvidia-vgpu-vfio", "the kernel driver nvidia-vgpu-vfio uses it"),
    ],
)
def test_a_gpu_of_another_kernel_driver_is_not_taken_from_it(driver: str, reason: str) -> None:
    assert reasons(offered(node(function(FIRST, driver=driver)), ALONE)) == {"0000:1b:00.0": reason}


def test_a_gpu_that_containers_cannot_have_says_who_has_it() -> None:
    found = offered(node(function(FIRST, driver="vfio-pci"), function(SECOND, driver=None)), "offer: whole")
    assert names(found) == []
    assert reasons(found) == {
        "0000:1b:00.0": "its kernel driver is vfio-pci, not the NVIDIA driver",
        "0000:43:00.0": "it has no kernel driver",
    }


def test_a_gpu_in_mig_mode_is_not_passed_through() -> None:
    cut = gpu(FIRST, mig_capable=True, mig_enabled=True)
    found = offered(node(function(FIRST), told=(cut,)), ALONE)
    assert (names(found), reasons(found)) == ([], {"0000:1b:00.0": MODE_ON})


def test_a_vgpu_is_not_handed_on() -> None:
    guest = gpu(FIRST, virtualization="vgpu")
    found = offered(node(function(FIRST), told=(guest,)), BESIDE)
    assert (names(found), reasons(found)) == ([ONE], {"0000:1b:00.0 passthrough": IN_A_VGPU})


def test_while_it_is_not_known_what_else_a_gpu_is_nothing_is_said_of_it() -> None:
    dumb = gpu(FIRST, unanswered=frozenset({"mig_mode"}))
    found = offered(node(function(FIRST), told=(dumb,)), BESIDE)
    assert names(found) == []
    assert [(one.pci, one.whole, one.away) for one in found.doubts] == [(FIRST, True, False)]


def test_rules_ask_of_a_gpu_elsewhere_what_sysfs_tells() -> None:
    found = node(function(FIRST, driver="vfio-pci"), function(SECOND, driver="vfio-pci"))
    by_address = offered(found, f"when: 'gpu.pciBusID == \"0000:1b:00.0\"', {ALONE}", "offer: hidden")
    assert names(by_address) == [f"{ONE}-vfio"]
    assert reasons(by_address) == {"0000:43:00.0": HIDDEN_BY_RULE}
    by_name = offered(found, f"when: 'gpu.productName == \"NVIDIA L40S\"', {ALONE}")
    assert names(by_name) == [f"{ONE}-vfio", f"{TWO}-vfio"]


def test_rules_that_ask_what_only_nvml_tells_keep_a_gpu_elsewhere_back() -> None:
    found = offered(node(function(FIRST, driver="vfio-pci")), f"when: has(gpu.memoryBytes), {ALONE}", ALONE)
    assert names(found) == []
    assert "nothing reports memoryBytes" in reasons(found)["0000:1b:00.0"]


def pair(**said: object) -> list[PciFunction]:
    """Two GPUs that no IOMMU tells apart."""
    return [function(FIRST, iommu_group=7), function(SECOND, iommu_group=7, **said)]


def test_gpus_of_one_group_are_one_device_that_takes_from_the_counters_of_both() -> None:
    found = offered(node(*pair()), BESIDE)
    both = found.devices[-1]
    assert names(found) == [TWO, ONE, f"{ONE}-0000-43-00-0-vfio"]
    assert both.consumed_sets == {ONE: {"gpu": 1}, TWO: {"gpu": 1}}
    assert both.regions == (Region(FIRST), Region(SECOND))


def test_gpus_of_one_group_of_which_one_is_alone_take_from_the_counters_of_the_other() -> None:
    found = offered(node(*pair()), f"when: gpu.index == 0, {ALONE}", BESIDE)
    assert names(found) == [TWO, f"{ONE}-0000-43-00-0-vfio"]
    assert found.devices[-1].consumed_sets == {TWO: {"gpu": 1}}


def test_a_gpu_stays_when_the_other_of_its_group_is_not_to_be_passed_through() -> None:
    found = offered(node(*pair()), f"when: gpu.index == 0, {BESIDE}", "offer: whole")
    assert names(found) == [ONE, TWO]
    [reason] = reasons(found).values()
    assert reason == "its IOMMU group 7 also has 0000:43:00.0, which is not offered for passthrough"


def test_a_group_is_not_offered_when_one_of_its_gpus_cannot_be_taken() -> None:
    found = offered(node(*pair(driver="nouveau")), ALONE)
    assert names(found) == []
    assert set(reasons(found).values()) == {
        "0000:43:00.0 of its IOMMU group: the kernel driver nouveau uses it"
    }


def test_more_than_two_gpus_of_a_group_go_together_only_alone() -> None:
    third = PciAddress.parse("0000:52:00.0")
    found = node(*pair(), function(third, iommu_group=7))
    assert names(offered(found, ALONE)) == [f"{ONE}-0000-43-00-0-0000-52-00-0-vfio"]
    beside = offered(found, BESIDE)
    assert not any(name.endswith("-vfio") for name in names(beside))
    assert all("offer them for passthrough only" in reason for reason in reasons(beside).values())


def virtual(driver: str | None) -> list[PciFunction]:
    """A GPU with two virtual functions, each in a group of its own, that go with this driver."""
    physical = function(FIRST, virtual=tuple(VIRTUAL), total_virtual=16)
    functions = [
        function(pci, physical=FIRST, driver=driver, iommu_group=50 + index, device_id=0x26BA)
        for index, pci in enumerate(VIRTUAL)
    ]
    return [physical, *functions]


@pytest.mark.parametrize("rule", [ALONE, BESIDE])
def test_virtual_functions_are_devices_of_their_own_and_instead_of_the_gpu(rule: str) -> None:
    found = offered(node(*virtual("vfio-pci")), rule)
    assert names(found) == ["gpu-0000-1b-00-4-vfio", "gpu-0000-1b-00-5-vfio"]
    assert all(device.attributes["virtualFunction"] is True for device in found.devices)
    assert reasons(found) == {"0000:1b:00.0": HANDED_OUT_BY_FUNCTIONS}


def test_slots_of_vgpus_are_no_devices_for_passthrough() -> None:
    found = offered(node(*virtual("nvidia")), BESIDE)
    assert names(found) == [ONE]
    assert reasons(found) == {"0000:1b:00.0 passthrough": VIRTUAL_FUNCTIONS_ON}


def test_the_kind_takes_all_of_the_gpus_in_a_name() -> None:
    name = f"{ONE}-0000-43-00-0-vfio"
    regions = (Region(FIRST), Region(SECOND))
    assert PASSTHROUGH.parse(name) == PASSTHROUGH.stored(name, {}) == PASSTHROUGH.place(name, {}) == regions
    assert PASSTHROUGH.parse(ONE) is None
    assert (PASSTHROUGH.title(name, {}), PASSTHROUGH.position(name)) == ("passthrough of 2 GPUs", "")
    assert PASSTHROUGH.title(f"{ONE}-vfio", {}) == "passthrough"
