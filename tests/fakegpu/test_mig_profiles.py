"""The MIG catalogues are the published tables, and profile names follow from memory alone."""

import pytest

from driver.nvml.mig import partition_name, profile_name
from tests.gpus import known_catalogues, known_machines, load_catalogue, load_machine

SEVEN_SLICES = {
    # id: (index, slices, most, starts, size, compute instances: slices -> most)
    19: (0x0, 1, 7, (0, 1, 2, 3, 4, 5, 6), 1, {1: 1}),
    14: (0x1, 2, 3, (0, 2, 4), 2, {1: 2, 2: 1}),
    9: (0x2, 3, 2, (0, 4), 4, {1: 3, 2: 1, 3: 1}),
    5: (0x3, 4, 1, (0,), 4, {1: 4, 2: 2, 4: 1}),
    0: (0x4, 7, 1, (0,), 8, {1: 7, 2: 3, 3: 2, 4: 1, 7: 1}),
    20: (0x7, 1, 1, (0, 1, 2, 3, 4, 5, 6), 1, {1: 1}),
    15: (0x9, 1, 4, (0, 2, 4, 6), 2, {1: 1}),
}
A30 = {
    14: (0x0, 1, 4, (0, 1, 2, 3), 1, {1: 1}),
    5: (0x1, 2, 2, (0, 2), 2, {1: 2, 2: 1}),
    0: (0x3, 4, 1, (0,), 4, {1: 4, 2: 2, 4: 1}),
    21: (0x7, 1, 1, (0, 1, 2, 3), 1, {1: 1}),
    6: (0x8, 2, 1, (0, 2), 2, {1: 2, 2: 1}),
}
QUARTERS, HALVES = (0, 3, 6, 9), (0, 6)
RTX_PRO = {
    14: (0x0, 1, 4, QUARTERS, 3, {1: 1}),
    5: (0x1, 2, 2, HALVES, 6, {1: 2, 2: 1}),
    0: (0x3, 4, 1, (0,), 12, {1: 4, 2: 2, 4: 1}),
    21: (0x7, 1, 1, QUARTERS, 3, {1: 1}),
    47: (0xA, 1, 4, QUARTERS, 3, {1: 1}),
    35: (0xB, 2, 2, HALVES, 6, {1: 2, 2: 1}),
    32: (0xC, 4, 1, (0,), 12, {1: 4, 2: 2, 4: 1}),
    67: (0xD, 1, 4, QUARTERS, 3, {1: 1}),
    66: (0xE, 2, 2, HALVES, 6, {1: 2, 2: 1}),
    65: (0xF, 1, 1, QUARTERS, 3, {1: 1}),
    64: (0x10, 2, 1, HALVES, 6, {1: 2, 2: 1}),
}
NAMES = {
    "a30-24gb": "1g.6gb 2g.12gb 4g.24gb 1g.6gb+me 2g.12gb+me",
    "a100-40gb": "1g.5gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb 1g.5gb+me 1g.10gb",
    "a100-80gb": "1g.10gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb 1g.10gb+me 1g.20gb",
    "h100-80gb": "1g.10gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb 1g.10gb+me 1g.20gb",
    "h100-96gb": "1g.12gb 2g.24gb 3g.48gb 4g.48gb 7g.96gb 1g.12gb+me 1g.24gb",
    "h200-141gb": "1g.18gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb 1g.18gb+me 1g.35gb",
    "b200-180gb": "1g.23gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb 1g.23gb+me 1g.45gb",
    "gb200-186gb": "1g.23gb 2g.47gb 3g.93gb 4g.93gb 7g.186gb 1g.23gb+me 1g.47gb",
    "rtx-pro-6000-96gb": "1g.24gb 2g.48gb 4g.96gb 1g.24gb+me 1g.24gb+gfx 2g.48gb+gfx 4g.96gb+gfx "
    "1g.24gb-me 2g.48gb-me 1g.24gb+me.all 2g.48gb+me.all",
}


def test_names_are_those_that_were_measured() -> None:
    catalogues = {name: load_catalogue(name) for name in known_catalogues()}
    assert {name: " ".join(one.name for one in found.profiles) for name, found in catalogues.items()} == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_ids_counts_and_places_are_those_of_the_hardware(name: str) -> None:
    catalogue = load_catalogue(name)
    expected = {"a30-24gb": A30, "rtx-pro-6000-96gb": RTX_PRO}.get(name, SEVEN_SLICES)
    assert {
        profile.id: (
            profile.index,
            profile.slices,
            profile.most_instances,
            tuple(place.start for place in catalogue.placements[profile.id]),
            catalogue.placements[profile.id][0].size,
            {inside.slices: inside.most_instances for inside in catalogue.compute_profiles(profile.id)},
        )
        for profile in catalogue.profiles
    } == expected


def test_the_compute_instance_of_double_memory_has_an_id_of_its_own() -> None:
    catalogue = load_catalogue("h100-80gb")
    ids = {
        profile.id: [ci.id for ci in catalogue.compute_profiles(profile.id)] for profile in catalogue.profiles
    }
    assert ids == {19: [0], 14: [0, 1], 9: [0, 1, 2], 5: [0, 1, 3], 0: [0, 1, 2, 3, 4], 20: [0], 15: [7]}


@pytest.mark.parametrize("machine", [name for name in known_machines() if load_machine(name).product.mig])
def test_the_names_of_a_machine_follow_from_its_memory(machine: str) -> None:
    product = load_machine(machine).product
    assert product.mig is not None
    assert product.memory_bytes is not None
    for profile in product.mig.profiles:
        name = profile_name(profile.index, profile.slices, profile.memory_bytes, product.memory_bytes)
        assert name == profile.name


@pytest.mark.parametrize(
    ("slices", "profile_mib", "gpu_mib", "name"),
    [
        (1, 9984, 81559, "1g.10gb"),  # H100 PCIe
        (1, 11008, 95830, "1g.12gb"),  # H100 NVL
        (3, 47488, 95830, "3g.47gb"),
        (2, 36096, 146831, "2g.36gb"),  # GH200 144 GB
        (1, 20992, 183359, "1g.23gb"),  # B200 with an older driver
        (4, 20224, 40960, "4g.20gb"),  # A100 with another driver
    ],
)
def test_the_names_of_other_boards_and_drivers_follow_too(
    slices: int, profile_mib: int, gpu_mib: int, name: str
) -> None:
    assert profile_name(0, slices, profile_mib * 2**20, gpu_mib * 2**20) == name


def test_a_part_of_an_instance_is_named_by_its_own_slices_first() -> None:
    catalogue = load_catalogue("a100-40gb")
    assert partition_name(catalogue.profile(9), 3) == "3g.20gb"
    assert partition_name(catalogue.profile(9), 1) == "1c.3g.20gb"
