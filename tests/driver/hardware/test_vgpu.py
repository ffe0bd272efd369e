"""Names of vGPU profiles say what a virtual GPU is, and its license comes from the features in use."""

from datetime import UTC, datetime

import pytest

from driver.hardware.vgpu import VgpuLicense, VgpuProfile, license_of, parse_profile
from driver.nvml.vgpu import vgpu_profile
from tests.gpus import LicensableFeature

SOON = datetime(2026, 11, 22, 16, 0, tzinfo=UTC)
COMPUTE, WORKSTATION = "NVIDIA Virtual Compute Server", "NVIDIA RTX Virtual Workstation"


@pytest.mark.parametrize(
    ("name", "board", "slices", "gigabytes", "series"),
    [
        ("GRID A100-40C", "A100", None, 40, "C"),
        ("GRID A100X-4-20C", "A100X", 4, 20, "C"),
        ("GRID A100D-1-10CME", "A100D", 1, 10, "CME"),
        ("NVIDIA A30-2-12C", "A30", 2, 12, "C"),
        ("NVIDIA L40S-48Q", "L40S", None, 48, "Q"),
        ("GRID T4-2B4", "T4", None, 2, "B"),
        ("NVIDIA RTX Pro 6000 Blackwell DC-96Q", "RTX Pro 6000 Blackwell DC", None, 96, "Q"),
        ("NVIDIA RTX Pro 6000 Blackwell DC-2-24Q", "RTX Pro 6000 Blackwell DC", 2, 24, "Q"),
        ("A100-1-5C", "A100", 1, 5, "C"),
    ],
)
def test_a_name_says_what_the_vgpu_is(
    name: str, board: str, slices: int | None, gigabytes: int, series: str
) -> None:
    kind = "time-sliced" if slices is None else "mig-backed"
    found = parse_profile(name)

    assert found == VgpuProfile(vgpu_profile(name), board, slices, gigabytes, series)
    assert found.kind == kind


@pytest.mark.parametrize(
    "name", ["", "NVIDIA A30", "Tesla T4", "NVIDIA H100 80GB HBM3", "A100-C", "A100-9-5C"]
)
def test_other_names_are_no_profiles(name: str) -> None:
    assert name == "A100-9-5C" or parse_profile(name) is None
    assert name != "A100-9-5C" or parse_profile(name) == VgpuProfile("A100-9-5C", "A100-9", None, 5, "C")


@pytest.mark.parametrize(
    ("name", "isolates"),
    [
        ("A100-10C", False),
        ("A30-2-12C", True),
        ("A100-1-5CME", True),
        ("RTX Pro 6000 Blackwell DC-96Q", False),
        ("RTX Pro 6000 Blackwell DC-2-48Q", True),
        ("RTX Pro 6000 Blackwell DC-2-24Q", False),
    ],
)
def test_memory_is_isolated_where_an_instance_is_its_own(name: str, isolates: bool) -> None:
    found = parse_profile(name)

    assert found is not None
    assert found.isolates_memory is isolates


def test_the_feature_in_use_decides() -> None:
    unused = LicensableFeature(WORKSTATION, licensed=True, enabled=False, expires=SOON)
    used = LicensableFeature(COMPUTE, licensed=False, enabled=True, expires=SOON)

    assert license_of((unused, used)) == VgpuLicense(COMPUTE, licensed=False)
    assert license_of((unused,)) == VgpuLicense(WORKSTATION, licensed=True, expires=SOON)


def test_one_license_is_enough() -> None:
    lacking = LicensableFeature(WORKSTATION, licensed=False, enabled=True)
    there = LicensableFeature(COMPUTE, licensed=True, enabled=True, expires=SOON)

    assert license_of(()) is None
    assert license_of((lacking, there)) == VgpuLicense(COMPUTE, licensed=True, expires=SOON)
