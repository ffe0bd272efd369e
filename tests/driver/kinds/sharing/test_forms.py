"""Shared devices say what a share is, exclude other forms of their GPU, and are kept back with a reason."""

from dataclasses import replace
from functools import cache

import pytest

from tests.driver.mig_machines import look, of_first, only, rules, shapes, with_mode_on
from tests.gpus import Device, Inventory, Offers, RequestPolicy, node_offers
from tools.conformance.nodes.mig_nodes import inventory as mig_inventory

GIB = 2**30
H100_BYTES = (81559 - 454) * 2**20  # the driver keeps 454 MiB for itself
SLICED = "{strategy: TimeSlicing, shares: 4}"
SERVED = "{strategy: MPS, shares: 4}"


def machine(name: str = "hgx-h100", gpus: int = 1) -> Inventory:
    found = mig_inventory(name, "delivered")
    return replace(found, gpus=found.gpus[:gpus])


def offered(rule: str, inventory: Inventory | None = None) -> Offers:
    return node_offers(inventory or machine(), rules(rule))


def one(rule: str, inventory: Inventory | None = None) -> Device:
    return only(offered(rule, inventory))


def reasons(offers: Offers) -> list[tuple[str, str]]:
    return [(held.part, held.reason) for held in offers.withheld]


def test_a_time_sliced_gpu_says_what_the_gpu_says_but_of_its_neighbours_and_how_it_is_shared() -> None:
    of_neighbours = {"nvlinkDomain", "nvlinkMesh", "nvlinkPeerCount", "cpuAffinity", "migCapable"}
    whole = node_offers(machine()).devices[0]

    device = one(f"shared: {SLICED}")

    told = {"type": "shared", "sharing": "time-slicing", "memoryIsolation": "none"}
    said = {name: value for name, value in whole.attributes.items() if name not in of_neighbours}
    assert device.name == "gpu-0000-1b-00-0-ts-4"
    assert device.attributes == {**said, **told}
    assert (device.span, device.counter_set, device.consumes) == (None, "", {})


@pytest.mark.parametrize(
    ("shared", "capacity", "shares", "memory"),
    [
        (SLICED, {"shares": 4, "memory": H100_BYTES}, (1, 1, 1), (0,)),
        ("{strategy: MPS, memory: {step: 5Gi}}", {"memory": H100_BYTES}, None, (5, 5, 5)),
        (
            "{strategy: MPS, shares: 4, memory: {step: 2Gi}}",
            *({"shares": 4, "memory": H100_BYTES}, (1, 1, 1), (18, 2, 2)),
        ),
        (
            "{strategy: MPS, shares: 10, memory: {step: 20Gi}}",
            *({"shares": 10, "memory": H100_BYTES}, (1, 1, 1), (20, 20, 20)),
        ),
        ("{strategy: MPS, memory: {step: 5Gi}, fractional: true}", {"memory": 75 * GIB}, None, (75, 5, 5)),
        (
            "{strategy: TimeSlicing, shares: 10, fractional: true}",
            *({"shares": 10, "memory": H100_BYTES}, (10, 1, 1), (0,)),
        ),
    ],
)
def test_measures_and_what_a_claim_takes_that_asks_for_nothing(
    shared: str, capacity: dict[str, int], shares: tuple[int, ...] | None, memory: tuple[int, ...]
) -> None:
    device = one(f"shared: {shared}")

    assert device.capacity == capacity
    policies = {} if shares is None else {"shares": RequestPolicy(*shares)}
    assert device.policies == {**policies, "memory": RequestPolicy(*(GIB * number for number in memory))}


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


def test_a_fractional_gpu_is_selected_like_a_whole_one_and_says_how_its_parts_are_kept_apart() -> None:
    whole = node_offers(machine(gpus=2)).devices[0]

    fractional = offered("shared: {strategy: MPS, shares: 4, fractional: true}", machine(gpus=2)).devices[0]

    told = {"sharing": "mps", "memoryIsolation": "mps"}
    assert fractional.attributes == {**whole.attributes, **told}
    assert fractional.attributes["type"] == "gpu"
    assert "nvlinkDomain" in fractional.attributes


@pytest.mark.parametrize(
    ("rule", "changes", "reason"),
    [
        (SERVED, {"virtualization": "vgpu"}, "MPS needs a compute mode that a vGPU does not have"),
        (
            *(SERVED, {"cuda_compute_capability": "6.1"}),
            "its compute capability is 6.1.0, and MPS can limit its clients only from 7.0",
        ),
        (SERVED, {"cuda_compute_capability": None}, "NVML does not report its compute capability"),
        (
            *("{strategy: TimeSlicing, memory: {step: 1Gi}}", {"memory_bytes": None}),
            "NVML does not report its memory",
        ),
        (
            *("{strategy: MPS, memory: {step: 41Gi}}", {}),
            "81105Mi of its memory can be shared, less than two steps of 41Gi",
        ),
        (
            *("{strategy: MPS, memory: {step: 1Gi}}", {}),
            "it has 79 steps of 1Gi, but MPS serves 48 clients on it: use steps of 1690Mi or more",
        ),
    ],
)
@pytest.mark.parametrize("forms", ["", "offer: whole, mig: off, "], ids=["alone", "beside"])
def test_a_gpu_that_cannot_be_shared_so_is_kept_back(
    rule: str, changes: dict[str, object], reason: str, forms: str
) -> None:
    found = offered(f"{forms}shared: {rule}", of_first(machine(), **changes))

    assert (shapes(found), found.counter_sets) == (["whole"] if forms else [], ())
    [(part, told)] = reasons(found)
    assert part == ("shared" if forms else "gpu")
    assert told.partition(": ")[2].startswith(reason)
    assert told.partition(": ")[0] == ("TimeSlicing" if "TimeSlicing" in rule else "MPS")


@cache
def node(name: str) -> Inventory:
    """The first GPU of a machine; of a ``guest``, of one that is ``cut``, or in MIG mode that is ``on``."""
    name, _, state = name.partition(" ")
    if state == "cut":
        return of_first(mig_inventory(name, "cut"))
    if state == "on":
        return of_first(look(with_mode_on(name)))
    return of_first(machine(name), **({"virtualization": "vgpu", "mig": None} if state else {}))


STATIC = ["static-1g-10gb-2", "static-1g-10gb-3", "static-2g-20gb-0", "static-3g-40gb-4"]
SLICES = {f"memory-slice-{number}" for number in range(8)}
MODE_ON = "MIG mode is on, so the GPU cannot be used as a whole"
STAYS_ON = "MIG mode is on and changes only with a GPU reset"
TOO_MANY = "MPS of 1g.10gb: 7 shares are more than the 6 clients that MPS serves on it"
EACH_WAY = f"shared: [{SLICED}, {SERVED}]"
SEVEN = "shared: {strategy: MPS, shares: 7}"


@pytest.mark.parametrize(
    ("machine", "rule", "shape", "withheld", "counters"),
    [
        ("hgx-h100", f"offer: whole, mig: off, shared: {SLICED}", ["ts-4", "whole"], {}, {"gpu"}),
        ("hgx-h100", EACH_WAY, ["ts-4", "mps-4"], {}, {"gpu"}),
        ("hgx-h100", f"offer: whole, {EACH_WAY}", ["ts-4", "mps-4", "whole"], {}, {"gpu"}),
        (
            *("hgx-h100 guest", EACH_WAY, ["ts-4"]),
            *({"shared": "MPS: MPS needs a compute mode that a vGPU does not have"}, set()),
        ),
        (
            *("hgx-h100", f"mig: {{dynamic: {{profiles: [3g]}}}}, {EACH_WAY}"),
            *(["mig-3g-40gb-4", "mig-3g-40gb-0", "ts-4", "mps-4", "whole"], {}),
            SLICES,
        ),
        (
            *("hgx-h100", f"mig: {{layout: [3g, 3g]}}, {EACH_WAY}"),
            [f"mig-3g-40gb-{start}-{way}-4" for start in (4, 0) for way in ("ts", "mps")],
            *({}, {"mig-3g-40gb-4", "mig-3g-40gb-0"}),
        ),
        (
            *("hgx-h100", f"mig: {{layout: [1g, 3g]}}, {SEVEN}", ["mig-3g-40gb-0-mps-7"]),
            *({"shared": TOO_MANY}, set()),
        ),
        ("hgx-h100", f"mig: {{layout: all-1g}}, {SEVEN}", [], {"gpu": TOO_MANY}, set()),
        ("hgx-h100", f"offer: hidden, shared: {SLICED}", [], {"gpu": "the node configuration hides"}, set()),
        ("hgx-h100 cut", f"shared: {SLICED}", [], {"gpu": MODE_ON}, set()),
        (
            *("hgx-h100 cut", f"offer: whole, shared: {SLICED}", STATIC),
            *({"whole": "its static MIG partitions are offered", "shared": "its static MIG"}, set()),
        ),
        (
            *("dgx-a100 on", f"offer: whole, mig: {{dynamic: {{profiles: [7g]}}}}, shared: {SLICED}"),
            *(["mig-7g-40gb-0"], {"whole": STAYS_ON, "shared": STAYS_ON}, SLICES),
        ),
    ],
)
def test_forms_stand_beside_each_other_and_take_the_counters_of_their_gpu(
    machine: str, rule: str, shape: list[str], withheld: dict[str, str], counters: set[str]
) -> None:
    found = offered(rule, node(machine))

    assert shapes(found) == shape
    assert [part for part, _ in reasons(found)] == list(withheld)
    assert all(reason.startswith(withheld[part]) for part, reason in reasons(found))
    assert {name for one in found.counter_sets for name in one.counters} == counters
    if counters:
        assert all(one.consumes.keys() <= counters and one.consumes for one in found.devices)
    whole = [one for one in found.devices if one.span is None and counters]
    assert all(one.consumes == found.counter_sets[0].counters for one in whole)


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


def test_the_partitions_of_an_admin_are_shared_with_their_uuid() -> None:
    cut = of_first(mig_inventory("hgx-h100", "cut"))

    found = offered(f"offer: partitions, shared: {SLICED}", cut)

    exclusive = offered("offer: partitions", cut)
    assert shapes(found) == [f"{shape}-ts-4" for shape in shapes(exclusive)]
    assert [one.attributes["uuid"] for one in found.devices] == [
        one.attributes["uuid"] for one in exclusive.devices
    ]
    assert found.counter_sets == ()
