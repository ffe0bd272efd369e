"""Names of vGPU profiles say what a virtual GPU is, and its license comes from the features in use."""

from datetime import UTC, datetime

import pytest

from driver.hardware.vgpu import VgpuLicense, VgpuProfile, license_of, parse_profile
from driver.nvml.vgpu import vgpu_profile
from tests.gpus import LicensableFeature

SOON = datetime(2026, 11, 22, 16, 0, tzinfo=UTC)
COMPUTE, WORKSTATION = "NVIDIA Virtual Compute Server", "NVIDIA RTX Virtual Workstation"


@pytest.mark.parametrize(
    ("name", "board", "slices", "gigabytes", "series", "isolates"),
    [
        ("GRID A100-40C", "A100", None, 40, "C", False),
        ("GRID A100X-4-20C", "A100X", 4, 20, "C", True),
        ("GRID A100D-1-10CME", "A100D", 1, 10, "CME", True),
        ("NVIDIA A30-2-12C", "A30", 2, 12, "C", True),
        ("NVIDIA L40S-48Q", "L40S", None, 48, "Q", False),
        ("GRID T4-2B4", "T4", None, 2, "B", False),
        ("NVIDIA RTX Pro 6000 Blackwell DC-96Q", "RTX Pro 6000 Blackwell DC", None, 96, "Q", False),
        ("NVIDIA RTX Pro 6000 Blackwell DC-2-24Q", "RTX Pro 6000 Blackwell DC", 2, 24, "Q", False),
        ("NVIDIA RTX Pro 6000 Blackwell DC-2-48Q", "RTX Pro 6000 Blackwell DC", 2, 48, "Q", True),
        ("A100-1-5C", "A100", 1, 5, "C", True),
    ],
)
def test_a_name_says_what_the_vgpu_is_and_whether_its_memory_is_its_own(
    name: str, board: str, slices: int | None, gigabytes: int, series: str, isolates: bool
) -> None:
    kind = "time-sliced" if slices is None else "mig-backed"
    found = parse_profile(name)

    assert found == VgpuProfile(vgpu_profile(name), board, slices, gigabytes, series)
    assert (found.kind, found.isolates_memory) == (kind, isolates)


@pytest.mark.parametrize(
    "name", ["", "NVIDIA A30", "Tesla T4", "NVIDIA H100 80GB HBM3", "A100-C", "A100-9-5C"]
)
def test_other_names_are_no_profiles(name: str) -> None:
    assert name == "A100-9-5C" or parse_profile(name) is None
    assert name != "A100-9-5C" or parse_profile(name) == VgpuProfile("A100-9-5C", "A100-9", None, 5, "C")


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
