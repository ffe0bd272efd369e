"""The shipped DeviceClasses say what they mean on every device of every machine, and fail on none."""

import pytest

from tests.clusters import Object, SelectorDevice
from tests.deviceclasses.published_nodes import (
    MIG_MACHINES,
    OTHER_MACHINES,
    of_machine,
    profile_of,
    selectable,
)
from tests.deviceclasses.shipped_classes import ALL, DEFAULT, OF_PROFILES, PROFILES, matches
from tests.gpus import known_catalogues, load_catalogue

SIZES = ("mig-small", "mig-medium", "mig-large")

SMALL_RTX = "1g.24gb 1g.24gb+gfx 1g.24gb+me 1g.24gb+me.all 1g.24gb-me"
MEDIUM_RTX = f"{SMALL_RTX} 2g.48gb 2g.48gb+gfx 2g.48gb+me.all 2g.48gb-me"
MATCHED = {
    "a30-quad": ("1g.6gb 1g.6gb+me", "2g.12gb 2g.12gb+me", "4g.24gb"),
    "dgx-a100": ("1g.5gb 1g.5gb+me 1g.10gb", "2g.10gb", "3g.20gb 4g.20gb"),
    "hgx-h100": ("1g.10gb 1g.10gb+me 1g.20gb", "2g.20gb", "3g.40gb 4g.40gb"),
    "hgx-b200": ("1g.23gb 1g.23gb+me 1g.45gb", "1g.45gb 2g.45gb", "3g.90gb 4g.90gb"),
    "rtx-pro-6000-octo": (SMALL_RTX, MEDIUM_RTX, f"{MEDIUM_RTX} 4g.96gb 4g.96gb+gfx"),
}
"""Machine -> for each size the profiles that are of it; other machines are cut alike."""


def test_the_classes_that_everybody_installs_are_these_and_claim_no_extended_resource() -> None:
    assert set(DEFAULT) == {
        *("gpu.nvidia.com", "mig.nvidia.com", "vfio.gpu.nvidia.com", "vgpu.gpu.nvidia.com"),
        *("large", "medium", *SIZES, "shared-timesliced", "shared-mps", "shared-mig"),
        *("shared-memory", "monitoring"),
    }
    assert [name for name, one in DEFAULT.items() if "extendedResourceName" in one["spec"]] == []


@pytest.mark.parametrize("machine", MATCHED)
def test_a_size_matches_the_profiles_that_its_promise_fits(machine: str) -> None:
    found = [(profile_of(device), selectable(device)) for device in of_machine(machine)]

    for size, profiles in zip(SIZES, MATCHED[machine], strict=True):
        assert {profile for profile, device in found if matches(size, device)} == set(profiles.split())


def test_machines_without_mig_have_none_of_the_sizes() -> None:
    for machine in OTHER_MACHINES:
        for device in map(selectable, of_machine(machine)):
            assert not any(matches(size, device) for size in SIZES)


@pytest.mark.parametrize("machine", [*MIG_MACHINES, *OTHER_MACHINES])
def test_a_named_class_matches_its_profile_and_nothing_else(machine: str) -> None:
    for device in of_machine(machine):
        seen = selectable(device)
        matched = [name for name in OF_PROFILES if matches(name, seen)]
        profile = profile_of(device)
        named = (
            profile not in ("whole", "passthrough", "vgpu") and "share" not in profile and "c." not in profile
        )
        assert matched == ([f"mig-{profile.replace('+', '.')}"] if named else [])


def test_every_profile_of_every_catalogue_has_a_named_class() -> None:
    profiles = {one.name for name in known_catalogues() for one in load_catalogue(name).profiles}

    assert profiles <= set(PROFILES)
    assert len(OF_PROFILES) == len(PROFILES)


@pytest.mark.parametrize("attributes", [{}, {"type": {"string": "mig"}, "profile": {"int": 1}}])
def test_a_device_of_another_driver_is_no_match_and_no_error(attributes: Object) -> None:
    device = SelectorDevice("other.example.com", attributes, {})

    assert {name: matches(name, device) for name in ALL} == dict.fromkeys(ALL, False)
