"""Each MIG mode offers what the GPU can be made into now, and says why it keeps the rest back."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from driver.devices.names import gpu_device_name
from driver.hardware.gpu import Inventory
from driver.nvml.mig import Placement
from driver.policy.offers import Offers, node_offers
from fakegpu.machine.fake_machine import FakeMachine
from tests.driver.mig_machines import device, look, mig_of, rules, with_mode_on

if TYPE_CHECKING:
    from driver.hardware.gpu import Gpu

ONE_G, TWO_G, THREE_G = 19, 14, 9
NEEDS_RESET = "MIG mode is off and changes only with a GPU reset"


def first_gpu(machine: str | FakeMachine) -> Inventory:
    """The inventory of a machine with its first GPU alone."""
    fake = machine if isinstance(machine, FakeMachine) else FakeMachine.open(machine)
    inventory = look(fake)
    return replace(inventory, gpus=inventory.gpus[:1])


def only(inventory: Inventory) -> Gpu:
    [gpu] = inventory.gpus
    return gpu


def shapes(offers: Offers) -> list[str]:
    """The names of the devices without what says the GPU: ``whole``, ``mig-1g-10gb-6``."""
    return [
        one.name.removeprefix(gpu_device_name(one.pci)).removeprefix("-") or "whole"
        for one in offers.devices
        if one.pci is not None
    ]


def reasons(offers: Offers) -> list[tuple[str, str]]:
    return [(held.part, held.reason) for held in offers.withheld]


def cut(machine: FakeMachine, *instances: tuple[int, int, tuple[int, ...]]) -> None:
    """Make GPU instances as an admin would: profile id, start, and the compute profiles inside."""
    gpu = device(machine)
    for profile_id, start, inside in instances:
        size = gpu.gpu_instance_placements(profile_id)[0].size
        made = gpu.create_gpu_instance(profile_id, Placement(start, size))
        for compute_profile in inside:
            gpu.create_compute_instance(made.id, compute_profile)


def test_static_publishes_what_an_admin_made_and_hides_the_whole_gpu() -> None:
    machine = with_mode_on("hgx-h100")
    cut(machine, (THREE_G, 4, (2,)), (ONE_G, 0, (0,)), (TWO_G, 2, (0, 0)))

    offers = node_offers(first_gpu(machine))

    assert shapes(offers) == [
        "static-1g-10gb-0",
        "static-1c-2g-20gb-2-0",
        "static-1c-2g-20gb-2-1",
        "static-3g-40gb-4",
    ]
    assert reasons(offers) == [("whole", "its static MIG partitions are offered instead")]
    assert offers.counter_sets == ()
    assert [one.span for one in offers.devices] == [
        Placement(0, 1),
        Placement(2, 2),
        Placement(2, 2),
        Placement(4, 4),
    ]


def test_a_static_partition_with_media_engines_is_not_given_out_before_a_plain_one() -> None:
    machine = with_mode_on("hgx-h100")
    cut(machine, (20, 0, (0,)), (ONE_G, 1, (0,)))
    assert shapes(node_offers(first_gpu(machine))) == ["static-1g-10gb-1", "static-1g-10gb-me-0"]


def test_only_a_partition_that_is_all_of_its_gpu_instance_has_memory_of_its_own() -> None:
    machine = with_mode_on("hgx-h100")
    cut(machine, (ONE_G, 0, (0,)), (TWO_G, 2, (0, 0)))
    found = {
        one.attributes["profile"]: one.attributes["memoryIsolation"]
        for one in node_offers(first_gpu(machine)).devices
    }
    assert found == {"1g.10gb": "hardware", "1c.2g.20gb": "none"}


def test_a_static_partition_says_what_it_is() -> None:
    machine = with_mode_on("hgx-h100")
    cut(machine, (THREE_G, 4, (2,)))
    inventory = first_gpu(machine)
    gpu = only(inventory)

    [partition] = node_offers(inventory).devices

    [made] = mig_of(gpu).partitions
    assert partition.attributes["uuid"] == made.uuid
    assert made.uuid.startswith("MIG-")
    assert partition.attributes["parentUUID"] == gpu.uuid
    assert partition.attributes["profile"] == "3g.40gb"
    assert partition.capacity == {
        "memory": 40448 * 2**20,
        "multiprocessors": 60,
        "copyEngines": 3,
        "decoders": 3,
        "encoders": 0,
        "jpegEngines": 3,
        "ofaEngines": 0,
        **{f"memorySlice{index}": 1 for index in (4, 5, 6, 7)},
    }


@pytest.mark.parametrize(
    ("instances", "reason"),
    [
        ((), "MIG mode is on, but no partition exists: make one, or turn MIG mode off"),
        (((ONE_G, 0, ()),), "none of its GPU instances has a compute instance, so nothing can use it"),
    ],
)
def test_static_offers_nothing_while_mig_mode_is_on_without_partitions(
    instances: tuple[tuple[int, int, tuple[int, ...]], ...], reason: str
) -> None:
    machine = with_mode_on("hgx-h100")
    cut(machine, *instances)

    offers = node_offers(first_gpu(machine))

    assert offers.devices == ()
    assert reasons(offers) == [("gpu", reason)]


def test_static_keeps_a_gpu_back_that_is_in_mig_mode_and_tells_no_partitions() -> None:
    inventory = first_gpu(with_mode_on("hgx-h100"))
    unanswered = replace(inventory, gpus=(replace(only(inventory), mig=None),))

    assert reasons(node_offers(unanswered)) == [
        ("gpu", "MIG mode is on, so the GPU cannot be used as a whole"),
    ]


def test_dynamic_offers_meaningful_partitions_beside_the_whole_gpu_and_counters_keep_them_apart() -> None:
    offers = node_offers(first_gpu("hgx-h100"), rules("mig: dynamic"))

    assert shapes(offers) == [
        *(f"mig-1g-10gb-{start}" for start in (6, 5, 4, 3, 2, 1, 0)),
        *(f"mig-2g-20gb-{start}" for start in (4, 2, 0)),
        *(f"mig-3g-40gb-{start}" for start in (4, 0)),
        "mig-4g-40gb-0",
        "whole",
    ]
    assert offers.withheld == ()
    [counters] = offers.counter_sets
    assert all(one.counter_set == counters.name for one in offers.devices)
    assert offers.devices[-1].consumes == counters.counters
    assert offers.devices[8].consumes == {"memory-slice-2": 1, "memory-slice-3": 1}


def test_the_whole_gpu_of_dynamic_mode_has_the_capacities_of_its_largest_profile() -> None:
    inventory = first_gpu("hgx-h100")

    whole = node_offers(inventory, rules("mig: dynamic")).devices[-1]

    assert whole.capacity == {
        "memory": only(inventory).memory_bytes,
        "multiprocessors": 132,
        "copyEngines": 8,
        "decoders": 7,
        "encoders": 0,
        "jpegEngines": 7,
        "ofaEngines": 1,
    }
    assert len(whole.attributes) + len(whole.capacity) <= 32
    assert "migWithheld" not in whole.attributes


def test_dynamic_profiles_are_picked_by_full_and_short_names_and_unlike_gpus_ignore_others() -> None:
    config = rules("mig: {dynamic: {profiles: [3g.40gb, 1g+me, 1g.24gb, 2g.12gb]}}")

    assert {one.split("-", 1)[1][:-2] for one in shapes(node_offers(first_gpu("hgx-h100"), config))[:-1]} == {
        "1g-10gb-me",
        "3g-40gb",
    }
    a30 = node_offers(first_gpu(with_mode_on("a30-quad")), config)
    assert shapes(a30)[-2:] == ["mig-2g-12gb-2", "mig-2g-12gb-0"]


def test_two_names_of_one_profile_publish_it_once() -> None:
    offers = node_offers(
        first_gpu("hgx-h100"), rules("offer: partitions, mig: {dynamic: {profiles: [3g, 3g.40gb]}}")
    )

    assert shapes(offers) == ["mig-3g-40gb-4", "mig-3g-40gb-0"]


def test_a_gpu_with_none_of_the_profiles_is_offered_whole_and_says_so() -> None:
    offers = node_offers(first_gpu("hgx-h100"), rules("mig: {dynamic: {profiles: [1g.24gb]}}"))

    reason = "it has none of the MIG profiles of the configuration"
    assert shapes(offers) == ["whole"]
    assert reasons(offers) == [("partitions", reason)]
    assert offers.devices[0].attributes["migWithheld"] == reason
    assert offers.counter_sets == ()


def test_where_the_mode_needs_a_reset_the_whole_gpu_says_why_it_has_no_partitions() -> None:
    offers = node_offers(first_gpu("dgx-a100"), rules("mig: dynamic"))

    [whole] = offers.devices
    assert whole.attributes["migWithheld"] == NEEDS_RESET
    assert whole.consumes == {}
    assert set(whole.capacity) == {"memory"}
    assert reasons(offers) == [("partitions", NEEDS_RESET)]
    assert offers.counter_sets == ()


def test_where_the_mode_needs_a_reset_and_is_on_there_are_partitions_alone() -> None:
    offers = node_offers(first_gpu(with_mode_on("dgx-a100")), rules("mig: dynamic"))

    assert "whole" not in shapes(offers)
    assert len(offers.devices) == 13
    assert reasons(offers) == [("whole", "MIG mode is on and changes only with a GPU reset")]
    none_fits = rules("mig: {dynamic: {profiles: [1g.24gb]}}")
    assert node_offers(first_gpu(with_mode_on("dgx-a100")), none_fits).devices == ()


def test_only_partitions_are_offered_where_the_rule_says_so() -> None:
    partitions = node_offers(first_gpu("hgx-h100"), rules("offer: partitions, mig: dynamic"))
    assert len(partitions.devices) == 13
    assert partitions.withheld == ()

    static = node_offers(first_gpu("hgx-h100"), rules("offer: partitions"))
    assert reasons(static) == [
        ("gpu", "it has no partition, and the node configuration offers nothing else of it"),
    ]
    ampere = node_offers(first_gpu("dgx-a100"), rules("offer: partitions, mig: dynamic"))
    assert reasons(ampere) == [("gpu", NEEDS_RESET)]
    assert ampere.devices == ()


def test_a_whole_gpu_that_nobody_asked_for_is_not_told_as_kept_back() -> None:
    machine = with_mode_on("hgx-h100")
    cut(machine, (ONE_G, 0, (0,)))

    offers = node_offers(first_gpu(machine), rules("offer: partitions, mig: static"))

    assert shapes(offers) == ["static-1g-10gb-0"]
    assert offers.withheld == ()


def test_a_layout_is_plain_partitions_without_counters_and_no_whole_gpu() -> None:
    offers = node_offers(first_gpu("hgx-h100"), rules("mig: {layout: all-balanced}"))

    assert shapes(offers) == ["mig-1g-10gb-3", "mig-1g-10gb-2", "mig-2g-20gb-0", "mig-3g-40gb-4"]
    assert offers.counter_sets == ()
    assert offers.withheld == ()
    assert {one.counter_set for one in offers.devices} == {""}
    spans = [one.span for one in offers.devices]
    assert spans == [Placement(3, 1), Placement(2, 1), Placement(0, 2), Placement(4, 4)]


def test_a_layout_and_dynamic_mode_give_a_partition_the_same_device_but_for_counters() -> None:
    inventory = first_gpu("hgx-h100")
    dynamic = {one.name: one for one in node_offers(inventory, rules("mig: dynamic")).devices}

    for partition in node_offers(inventory, rules("mig: {layout: {1g: 3, 3g.40gb: 1}}")).devices:
        assert replace(dynamic[partition.name], counter_set="", consumes={}) == partition


@pytest.mark.parametrize(
    ("machine", "layout", "reason"),
    [
        ("hgx-h100", "all-1g.5gb", "the GPU has no profile 1g.5gb: its profiles are 1g.10gb, 2g.20gb"),
        ("hgx-h100", "[4g, 4g]", "the layout 4g, 4g does not fit on it"),
        ("hgx-h100", "all-enabled", "the layout all-enabled has no partitions"),
        ("dgx-a100", "all-1g", NEEDS_RESET),
        ("l40s-octo", "all-1g", "it has no MIG, so it cannot be partitioned"),
        ("a100-vgpu-guest", "all-1g", "it has no MIG, so it cannot be partitioned"),
    ],
)
def test_a_gpu_that_cannot_have_its_layout_is_kept_back(machine: str, layout: str, reason: str) -> None:
    offers = node_offers(first_gpu(machine), rules(f"mig: {{layout: {layout}}}"))

    assert offers.devices == ()
    [(part, told)] = reasons(offers)
    assert part == "gpu"
    assert told.startswith(reason)


@pytest.mark.parametrize("machine", ["l40s-octo", "t4", "a100-vgpu-guest"])
def test_a_gpu_without_mig_stays_whole_under_dynamic_mode(machine: str) -> None:
    assert node_offers(first_gpu(machine), rules("mig: dynamic")) == node_offers(first_gpu(machine))


def test_a_vgpu_guest_that_knows_mig_stays_whole_since_it_may_not_change_it() -> None:
    inventory = first_gpu("hgx-h100")
    guest = replace(only(inventory), virtualization="vgpu", mig=None)

    offers = node_offers(replace(inventory, gpus=(guest,)), rules("mig: dynamic"))

    assert shapes(offers) == ["whole"]
    assert offers.withheld == ()


@pytest.mark.parametrize("mig", ["dynamic", "{layout: all-1g}"])
def test_a_gpu_whose_mig_is_not_told_is_kept_back_since_partitions_of_it_may_be_in_use(mig: str) -> None:
    inventory = first_gpu("hgx-h100")
    unanswered = replace(inventory, gpus=(replace(only(inventory), mig=None, mig_capable=None),))

    offers = node_offers(unanswered, rules(f"mig: {mig}"))

    assert offers.devices == ()
    assert reasons(offers) == [("gpu", "NVML does not report its MIG profiles")]


def test_off_offers_the_whole_gpu_unless_the_mode_is_on() -> None:
    assert shapes(node_offers(first_gpu("hgx-h100"), rules("mig: off"))) == ["whole"]
    on = node_offers(first_gpu(with_mode_on("hgx-h100")), rules("mig: off"))
    assert reasons(on) == [("gpu", "MIG mode is on, so the GPU cannot be used as a whole")]


@pytest.mark.parametrize("mig", ["static", "dynamic", "{layout: all-1g}"])
def test_what_is_hidden_is_hidden_in_every_mode(mig: str) -> None:
    offers = node_offers(first_gpu("hgx-h100"), rules(f"offer: hidden, mig: {mig}"))

    assert offers.devices == ()
    assert reasons(offers) == [("gpu", "the node configuration hides it")]


def test_the_mode_of_a_gpu_that_needs_no_reset_changes_nothing_of_what_dynamic_mode_offers() -> None:
    off = node_offers(first_gpu("hgx-h100"), rules("mig: dynamic"))
    on = node_offers(first_gpu(with_mode_on("hgx-h100")), rules("mig: dynamic"))

    assert (on.devices, on.counter_sets) == (off.devices, off.counter_sets)


def test_a_partition_carries_what_selectors_ask_for() -> None:
    inventory = first_gpu("hgx-h100")
    offers = node_offers(inventory, rules("mig: dynamic"))
    whole, partition = offers.devices[-1], offers.devices[0]

    own = {"type": "mig", "parentUUID": only(inventory).uuid, "profile": "1g.10gb"}
    assert own.items() <= partition.attributes.items()
    same = partition.attributes.keys() - own.keys()
    assert same == {
        "productName", "brand", "architecture", "cudaComputeCapability", "driverVersion",
        "cudaDriverVersion", "addressingMode", "index", "numaNode", "sharing", "memoryIsolation",
        "resource.kubernetes.io/numaNode", "resource.kubernetes.io/pciBusID",
        "resource.kubernetes.io/pcieRoot",
    }  # fmt: skip
    assert {name: whole.attributes[name] for name in same} == {
        name: partition.attributes[name] for name in same
    }


def test_partitions_come_first_and_whole_gpus_with_counters_last_from_the_other_end() -> None:
    config = rules('when: "gpu.index < 2", mig: dynamic')
    inventory = look(FakeMachine.open("hgx-h100"))
    four = replace(inventory, gpus=tuple(reversed(inventory.gpus[:4])))

    devices = node_offers(four, config).devices

    assert [one.pci for one in devices[:26]] == [inventory.gpus[0].pci] * 13 + [inventory.gpus[1].pci] * 13
    assert [one.name for one in devices[26:]] == [
        "gpu-0000-52-00-0",
        "gpu-0000-61-00-0",
        "gpu-0000-43-00-0",
        "gpu-0000-1b-00-0",
    ]
