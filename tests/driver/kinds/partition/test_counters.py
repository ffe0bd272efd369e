"""The counters of a GPU allow exactly the sets of partitions that the hardware allows."""

from collections import Counter

import pytest

from driver.kinds.partition.kind import ENGINE_COUNTERS, counter_set
from tests.driver.mig_machines import AMPERE, UNLIKE, all_profiles, look, mig_of, rules, with_mode_on
from tests.gpus import (
    CounterSet,
    Device,
    MigCatalogue,
    MigState,
    NodeConfig,
    Placement,
    gpu_instance_refusal,
    load_machine,
    node_offers,
    with_gpu_instance,
)
from tools.conformance.nodes.mig_nodes import inventory

Offered = list[tuple[int, "Placement", "Device"]]
"""Profile id, placement and device of each partition, by first memory slice."""


def offered(machine: str, config: NodeConfig | None) -> tuple[Offered, CounterSet, Device | None]:
    """The partitions of the first GPU of a machine, its counters, and the whole GPU where that is offered."""
    inventory = look(with_mode_on(machine))
    gpu = inventory.gpus[0]
    offers = node_offers(inventory, config or all_profiles(mig_of(gpu)))
    ids = {placed.profile.name: placed.profile.id for placed in mig_of(gpu).profiles}
    mine = [device for device in offers.devices if device.pci == gpu.pci]
    partitions = [
        (ids[str(device.attributes["profile"])], device.span, device) for device in mine if device.span
    ]
    whole = next((device for device in mine if device.span is None), None)
    partitions.sort(key=lambda one: one[1].start)
    return partitions, next(one for one in offers.counter_sets if one.pci == gpu.pci), whole


def suffices(counters: CounterSet, devices: list[Device]) -> bool:
    used: Counter[str] = Counter()
    for device in devices:
        used.update(device.consumes)
    return all(used[name] <= counters.counters[name] for name in used)


def compare(
    catalogue: MigCatalogue, counters: CounterSet, partitions: Offered, state: MigState, taken: list[Device]
) -> int:
    """Compare hardware and counters for every set of partitions made from low slices to high; how many."""
    start = max((gi.placement.start for gi in state.instances), default=-1)
    compared = 1
    for profile_id, placement, device in partitions:
        if placement.start < start:
            continue
        allowed = gpu_instance_refusal(catalogue, state, profile_id, placement) is None
        chosen = [*taken, device]
        assert suffices(counters, chosen) == allowed, [one.name for one in chosen]
        if allowed:
            after, _ = with_gpu_instance(catalogue, state, profile_id, placement)
            compared += compare(catalogue, counters, partitions, after, chosen)
    return compared


@pytest.mark.parametrize("config", ["default profiles", "all profiles"])
@pytest.mark.parametrize("machine", UNLIKE)
def test_counters_allow_what_the_hardware_allows_and_nothing_else(machine: str, config: str) -> None:
    catalogue = load_machine(machine).product.mig
    assert catalogue is not None
    partitions, counters, _ = offered(machine, rules("mig: dynamic") if config[0] == "d" else None)

    assert compare(catalogue, counters, partitions, MigState(enabled=True, pending=True), []) > 20


@pytest.mark.parametrize("machine", UNLIKE)
def test_the_whole_gpu_leaves_no_room_for_any_partition_nor_they_for_it(machine: str) -> None:
    partitions, counters, whole = offered(machine, None)
    if whole is None:
        assert machine in AMPERE
        return
    assert whole.consumes == counters.counters
    assert suffices(counters, [whole])
    for _, _, device in partitions:
        assert not suffices(counters, [whole, device]), device.name


@pytest.mark.parametrize("machine", UNLIKE)
def test_the_usual_profiles_need_no_counters_but_memory_slices(machine: str) -> None:
    _, counters, _ = offered(machine, rules("mig: dynamic"))

    assert not set(counters.counters) & set(ENGINE_COUNTERS)
    assert set(counters.counters.values()) == {1}


@pytest.mark.parametrize(
    ("machine", "engines"),
    [
        ("hgx-h100", {"ofa-engines": 1}),
        ("dgx-a100", {"decoders": 5, "jpeg-engines": 1, "ofa-engines": 1}),
        ("a30-quad", {"jpeg-engines": 1, "ofa-engines": 1}),
        ("rtx-pro-6000-octo", {"decoders": 4, "encoders": 4, "jpeg-engines": 4, "ofa-engines": 1}),
    ],
)
def test_engines_that_can_run_out_are_counted(machine: str, engines: dict[str, int]) -> None:
    partitions, counters, _ = offered(machine, None)

    assert {name: counters.counters[name] for name in ENGINE_COUNTERS if name in counters.counters} == engines
    plain = next(device for _, _, device in partitions if "+" not in str(device.attributes["profile"]))
    assert 0 not in plain.consumes.values()


def test_engines_are_counted_when_one_more_than_there_are_can_be_needed_and_not_before() -> None:
    gpu = inventory("hgx-h100", "delivered").gpus[0]
    media = [
        (placed.profile, placement)
        for placed in mig_of(gpu).profiles
        for placement in placed.placements
        if placed.profile.name == "1g.10gb+me"
    ]

    assert "ofa-engines" not in counter_set(gpu, mig_of(gpu), media[:1]).counters
    assert counter_set(gpu, mig_of(gpu), media[:2]).counters["ofa-engines"] == 1
