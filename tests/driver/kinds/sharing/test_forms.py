"""Shared devices say what a share is, exclude other forms of their GPU, and are kept back with a reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from driver.devices.device import Device, RequestPolicy, Version
from driver.hardware.gpu import Gpu, Inventory
from driver.nvml.pci_address import PciAddress
from driver.policy.offers import Offers, node_offers
from fakegpu.machine.fake_machine import FakeMachine
from tests.driver.mig_machines import look, rules, with_mode_on
from tools.conformance.nodes.mig_nodes import inventory as mig_inventory

GIB = 2**30
H100_BYTES = (81559 - 454) * 2**20  # the driver keeps 454 MiB for itself
SLICED = "{strategy: TimeSlicing, shares: 4}"
SERVED = "{strategy: MPS, shares: 4}"
LAID_OUT = "mig: {layout: all-3g}"


def machine(name: str = "hgx-h100", gpus: int = 1) -> Inventory:
    found = look(FakeMachine.open(name))
    return replace(found, gpus=found.gpus[:gpus])


def of_first(inventory: Inventory, **changes: object) -> Inventory:
    """The inventory with its first GPU alone, of which something is otherwise."""
    return replace(inventory, gpus=(replace(inventory.gpus[0], **changes),))  # type: ignore[arg-type] # fields


def offered(rule: str, inventory: Inventory | None = None) -> Offers:
    return node_offers(inventory or machine(), rules(rule))


def one(rule: str, inventory: Inventory | None = None) -> Device:
    offers = offered(rule, inventory)
    assert offers.withheld == ()
    [device] = offers.devices
    return device


def shapes(offers: Offers) -> list[str]:
    """The names of the devices without the GPU's: ``ts-4``, and ``whole``."""
    return [device.name[17:] or "whole" for device in offers.devices]


def reasons(offers: Offers) -> list[tuple[str, str]]:
    return [(held.part, held.reason) for held in offers.withheld]


def test_a_time_sliced_gpu_says_what_it_is() -> None:
    gpu = machine().gpus[0]

    device = one(f"shared: {SLICED}")

    assert device.name == "gpu-0000-1b-00-0-ts-4"
    assert device.attributes == {
        "type": "shared",
        "sharing": "time-slicing",
        "memoryIsolation": "none",
        "uuid": gpu.uuid,
        "productName": "NVIDIA H100 80GB HBM3",
        "brand": "Nvidia",
        "architecture": "Hopper",
        "cudaComputeCapability": Version("9.0.0"),
        "driverVersion": device.attributes["driverVersion"],
        "cudaDriverVersion": device.attributes["cudaDriverVersion"],
        "addressingMode": "HMM",
        "index": 0,
        "numaNode": 0,
        "resource.kubernetes.io/numaNode": 0,
        "resource.kubernetes.io/pciBusID": "0000:1b:00.0",
        "resource.kubernetes.io/pcieRoot": gpu.pcie_root,
        "pcieSwitches": "19:00.0",
        "virtualization": "none",
    }
    assert (device.span, device.counter_set, device.consumes) == (None, "", {})


@pytest.mark.parametrize(
    ("shared", "capacity", "policies"),
    [
        (
            SLICED,
            {"shares": 4, "memory": H100_BYTES},
            {"shares": RequestPolicy(1, 1, 1), "memory": RequestPolicy(0)},
        ),
        (
            "{strategy: MPS, memory: {step: 5Gi}}",
            {"memory": H100_BYTES},
            {"memory": RequestPolicy(5 * GIB, 5 * GIB, 5 * GIB)},
        ),
        (
            "{strategy: MPS, shares: 4, memory: {step: 2Gi}}",
            {"shares": 4, "memory": H100_BYTES},
            {"shares": RequestPolicy(1, 1, 1), "memory": RequestPolicy(18 * GIB, 2 * GIB, 2 * GIB)},
        ),
        (
            "{strategy: MPS, shares: 10, memory: {step: 20Gi}}",
            {"shares": 10, "memory": H100_BYTES},
            {"shares": RequestPolicy(1, 1, 1), "memory": RequestPolicy(20 * GIB, 20 * GIB, 20 * GIB)},
        ),
        (
            "{strategy: MPS, memory: {step: 5Gi}, fractional: true}",
            {"memory": 75 * GIB},
            {"memory": RequestPolicy(75 * GIB, 5 * GIB, 5 * GIB)},
        ),
        (
            "{strategy: TimeSlicing, shares: 10, fractional: true}",
            {"shares": 10, "memory": H100_BYTES},
            {"shares": RequestPolicy(10, 1, 1), "memory": RequestPolicy(0)},
        ),
    ],
)
def test_measures_and_what_a_claim_takes_that_asks_for_nothing(
    shared: str, capacity: dict[str, int], policies: dict[str, RequestPolicy]
) -> None:
    device = one(f"shared: {shared}")

    assert device.capacity == capacity
    assert device.policies == policies


@pytest.mark.parametrize(
    ("name", "mib"),
    [("t4", 14913), ("l4-quad", 22564), ("dgx-a100-80gb", 81157), ("a100-vgpu-guest-quad", 37740)],
)
def test_shares_are_of_what_the_nvidia_driver_leaves_and_a_whole_gpu_has_all_its_memory(
    name: str, mib: int
) -> None:
    inventory = machine(name)
    shared, whole = offered(f"offer: whole, mig: off, shared: {SLICED}", inventory).devices
    assert shared.capacity["memory"] == mib * 2**20
    assert whole.capacity["memory"] == inventory.gpus[0].memory_bytes


def test_only_while_it_is_not_known_what_the_driver_keeps_nothing_is_shared_by_memory() -> None:
    assert one(f"shared: {SLICED}", of_first(machine(), reserved_bytes=None)).capacity["memory"] > H100_BYTES
    inventory = of_first(machine(), reserved_bytes=None, unanswered=frozenset({"memory_use"}))
    assert one(f"shared: {SLICED}", inventory).capacity == {"shares": 4}
    found = offered("shared: {strategy: TimeSlicing, memory: {step: 1Gi}}", inventory)
    assert ([doubt.whole for doubt in found.doubts], found.devices) == ([True], ())


def test_a_partition_is_shared_with_all_its_memory() -> None:
    alone, shared = (offered(rule).devices for rule in (LAID_OUT, f"{LAID_OUT}, shared: {SLICED}"))
    assert [one.capacity["memory"] for one in shared] == [one.capacity["memory"] for one in alone]


def test_only_mps_on_a_whole_gpu_isolates_memory() -> None:
    assert one(f"shared: {SERVED}").attributes["memoryIsolation"] == "mps"
    assert one(f"shared: {SLICED}").attributes["memoryIsolation"] == "none"
    partitions = offered("mig: {layout: all-3g}, shared: {strategy: MPS, shares: 2}").devices
    assert {device.attributes["memoryIsolation"] for device in partitions} == {"none"}


def test_a_fractional_gpu_is_selected_like_a_whole_one_and_says_how_its_parts_are_kept_apart() -> None:
    whole = node_offers(machine(gpus=2)).devices[0]

    fractional = offered("shared: {strategy: MPS, shares: 4, fractional: true}", machine(gpus=2)).devices[0]

    told = {"sharing": "mps", "memoryIsolation": "mps"}
    assert fractional.attributes == {**whole.attributes, **told}
    assert fractional.attributes["type"] == "gpu"
    assert "nvlinkDomain" in fractional.attributes


def test_what_is_not_known_of_the_memory_is_not_published() -> None:
    device = one(f"shared: {SLICED}", of_first(machine(), memory_bytes=None))

    assert device.capacity == {"shares": 4}
    assert device.policies.keys() == {"shares"}


@pytest.mark.parametrize(
    ("rule", "changes", "reason"),
    [
        (SERVED, {"virtualization": "vgpu"}, "MPS: MPS needs a compute mode that a vGPU does not have"),
        (
            SERVED,
            {"cuda_compute_capability": "6.1"},
            "MPS: its compute capability is 6.1.0, and MPS can limit its clients only from 7.0",
        ),
        (SERVED, {"cuda_compute_capability": None}, "MPS: NVML does not report its compute capability"),
        (
            "{strategy: TimeSlicing, memory: {step: 1Gi}}",
            {"memory_bytes": None},
            "TimeSlicing: NVML does not report its memory",
        ),
        (
            "{strategy: MPS, memory: {step: 41Gi}}",
            {},
            "MPS: 81105Mi of its memory can be shared, less than two steps of 41Gi",
        ),
        (
            "{strategy: MPS, memory: {step: 1Gi}}",
            {},
            "MPS: it has 79 steps of 1Gi, but MPS serves 48 clients on it: use steps of 1690Mi or more",
        ),
    ],
)
def test_a_gpu_that_cannot_be_shared_so_is_kept_back(
    rule: str, changes: dict[str, object], reason: str
) -> None:
    inventory = of_first(machine(), **changes)

    alone = offered(f"shared: {rule}", inventory)
    assert alone.devices == ()
    [(part, told)] = reasons(alone)
    assert part == "gpu"
    assert told.startswith(reason)

    beside = offered(f"offer: whole, mig: off, shared: {rule}", inventory)
    assert shapes(beside) == ["whole"]
    assert beside.counter_sets == ()
    [(part, told)] = reasons(beside)
    assert part == "shared"
    assert told.startswith(reason)


def test_the_smallest_step_that_is_named_is_taken() -> None:
    assert one("shared: {strategy: MPS, memory: {step: 1690Mi}}").capacity["memory"] // (1690 * 2**20) <= 48


def test_the_strategy_that_is_possible_stays() -> None:
    guest = of_first(machine(), virtualization="vgpu", mig=None)

    found = offered(f"shared: [{SERVED}, {SLICED}]", guest)

    assert shapes(found) == ["ts-4"]
    assert found.counter_sets == ()
    assert reasons(found) == [("shared", "MPS: MPS needs a compute mode that a vGPU does not have")]


@pytest.mark.parametrize(
    ("rule", "shape"),
    [
        (f"offer: whole, mig: off, shared: {SLICED}", ["ts-4", "whole"]),
        (f"shared: [{SLICED}, {SERVED}]", ["ts-4", "mps-4"]),
        (f"offer: whole, shared: [{SERVED}, {SLICED}]", ["mps-4", "ts-4", "whole"]),
    ],
)
def test_forms_that_exclude_each_other_take_the_counter_of_their_gpu(rule: str, shape: list[str]) -> None:
    found = offered(rule)

    assert shapes(found) == shape
    [counters] = found.counter_sets
    assert counters.counters == {"gpu": 1}
    assert {(one.counter_set, *one.consumes.items()) for one in found.devices} == {
        (counters.name, ("gpu", 1))
    }
    assert all(one.capacity.keys() <= {"memory", "shares"} for one in found.devices)


def test_everything_at_once_takes_the_counters_of_partitions() -> None:
    found = offered(f"mig: {{dynamic: {{profiles: [3g]}}}}, shared: [{SLICED}, {SERVED}]")

    assert shapes(found) == ["mig-3g-40gb-4", "mig-3g-40gb-0", "ts-4", "mps-4", "whole"]
    [counters] = found.counter_sets
    assert all(one.consumes == counters.counters for one in found.devices[2:])
    assert "multiprocessors" in found.devices[-1].capacity
    assert found.devices[2].capacity.keys() == {"memory", "shares"}


def test_shares_fill_a_node_from_its_first_gpu_and_whole_gpus_from_its_last() -> None:
    shared = "offer: whole, shared: {strategy: TimeSlicing, shares: 2}"
    found = offered(f'when: "gpu.index < 2", {shared}', machine(gpus=4))

    assert [one.name for one in found.devices] == [
        "gpu-0000-1b-00-0-ts-2",
        "gpu-0000-43-00-0-ts-2",
        "gpu-0000-52-00-0",
        "gpu-0000-61-00-0",
        "gpu-0000-43-00-0",
        "gpu-0000-1b-00-0",
    ]


def test_fractional_gpus_stand_among_the_whole_ones() -> None:
    fractional = "shared: {strategy: TimeSlicing, shares: 2, fractional: true}"
    found = offered(f'when: "gpu.index == 1", {fractional}', machine(gpus=3))

    assert [one.name for one in found.devices] == [
        "gpu-0000-1b-00-0",
        "gpu-0000-43-00-0-ts-frac-2",
        "gpu-0000-52-00-0",
    ]
    assert found.counter_sets == ()


def test_partitions_are_shared_instead_of_given_out_whole() -> None:
    dynamic = offered(
        "offer: partitions, mig: {dynamic: {profiles: [3g]}}, shared: {strategy: MPS, shares: 2}"
    )

    assert shapes(dynamic) == ["mig-3g-40gb-4-mps-2", "mig-3g-40gb-0-mps-2"]
    exclusive = offered("offer: partitions, mig: {dynamic: {profiles: [3g]}}")
    assert dynamic.counter_sets == exclusive.counter_sets
    for shared, alone in zip(dynamic.devices, exclusive.devices, strict=True):
        assert (shared.span, shared.consumes) == (alone.span, alone.consumes)
        assert shared.capacity == {"memory": alone.capacity["memory"], "shares": 2}
        told = {"type": "shared", "sharing": "mps", "memoryIsolation": "none"}
        assert shared.attributes == {**alone.attributes, **told}


def test_partitions_that_are_shared_in_two_ways_have_a_counter_each() -> None:
    found = offered(f"mig: {{layout: [3g, 3g]}}, shared: [{SLICED}, {SERVED}]")

    assert shapes(found) == [
        "mig-3g-40gb-4-ts-4",
        "mig-3g-40gb-4-mps-4",
        "mig-3g-40gb-0-ts-4",
        "mig-3g-40gb-0-mps-4",
    ]
    [counters] = found.counter_sets
    assert counters.counters == {"mig-3g-40gb-4": 1, "mig-3g-40gb-0": 1}
    assert [dict(one.consumes) for one in found.devices[:2]] == [{"mig-3g-40gb-4": 1}] * 2


def test_the_partitions_of_an_admin_are_shared_with_their_uuid() -> None:
    cut = of_first(mig_inventory("hgx-h100", "cut"))

    found = offered(f"offer: partitions, shared: {SLICED}", cut)

    exclusive = offered("offer: partitions", cut)
    assert shapes(found) == [f"{shape}-ts-4" for shape in shapes(exclusive)]
    assert [one.attributes["uuid"] for one in found.devices] == [
        one.attributes["uuid"] for one in exclusive.devices
    ]
    assert found.counter_sets == ()


def test_a_gpu_in_mig_mode_is_not_shared_as_a_whole() -> None:
    cut = of_first(mig_inventory("hgx-h100", "cut"))

    assert reasons(offered(f"shared: {SLICED}", cut)) == [
        ("gpu", "MIG mode is on, so the GPU cannot be used as a whole")
    ]
    beside = offered(f"offer: whole, shared: {SLICED}", cut)
    assert {device.attributes["type"] for device in beside.devices} == {"mig"}
    assert [part for part, _ in reasons(beside)] == ["whole", "shared"]


def test_of_a_partition_mps_serves_the_clients_of_its_compute_slices() -> None:
    rule = "mig: {layout: [1g, 3g]}, shared: {strategy: MPS, shares: 7}"

    found = offered(rule)

    assert shapes(found) == ["mig-3g-40gb-0-mps-7"]
    assert reasons(found) == [
        ("shared", "MPS of 1g.10gb: 7 shares are more than the 6 clients that MPS serves on it")
    ]


def test_partitions_none_of_which_can_be_shared_keep_the_gpu_back() -> None:
    found = offered("mig: {layout: all-1g}, shared: {strategy: MPS, shares: 7}")

    assert found.devices == ()
    assert found.counter_sets == ()
    [(part, reason)] = reasons(found)
    assert part == "gpu"
    assert reason.startswith("MPS of 1g.10gb: 7 shares")


def test_where_mig_keeps_the_whole_gpu_back_it_is_not_shared_either() -> None:
    on = of_first(look(with_mode_on("dgx-a100")))

    found = offered(f"mig: dynamic, shared: {SLICED}", on)

    assert {one.span is None for one in found.devices} == {False}
    assert reasons(found) == [
        ("whole", "MIG mode is on and changes only with a GPU reset"),
        ("shared", "MIG mode is on and changes only with a GPU reset"),
    ]


def test_a_hidden_gpu_is_not_shared() -> None:
    assert reasons(offered(f"offer: hidden, shared: {SLICED}")) == [
        ("gpu", "the node configuration hides it")
    ]


def test_a_gpu_of_which_hardly_anything_is_known_can_be_time_sliced() -> None:
    bare = Gpu(PciAddress.parse("0000:8a:00.0"), "GPU-x", 0, 0)

    device = one(f"shared: {SLICED}", Inventory((bare,)))

    assert device.attributes == {
        "type": "shared",
        "uuid": "GPU-x",
        "sharing": "time-slicing",
        "memoryIsolation": "none",
        "index": 0,
        "resource.kubernetes.io/pciBusID": "0000:8a:00.0",
    }
