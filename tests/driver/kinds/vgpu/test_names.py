"""Names of vGPUs say all that has to be known of one, and are no other kind's."""

from __future__ import annotations

import pytest

from driver.devices.limits import is_dns_label
from driver.kinds.vgpu.names import VgpuName, parse_vgpu_name, profile_label, vgpu_device_name
from driver.nvml.pci_address import PciAddress

GPU = PciAddress.parse("0000:17:00.0")
PROFILES = (
    "L40S-8Q",
    "A100-4C",
    "A100-1-5CME",
    "H100XM-1-10C",
    "RTX Pro 6000 Blackwell DC-1-24Q",
    "A30-4-24C",
)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_name_is_read_as_it_was_made(profile: str) -> None:
    name = vgpu_device_name(GPU, profile, 31)

    assert is_dns_label(name)
    assert parse_vgpu_name(name) == VgpuName(GPU, profile_label(profile), 31)


def test_a_name_is_short_enough_for_a_label() -> None:
    assert vgpu_device_name(GPU, "L40S-8Q", 3) == "gpu-0000-17-00-0-vgpu-l40s-8q-3"


@pytest.mark.parametrize(
    "name",
    [
        "gpu-0000-17-00-0",
        "gpu-0000-17-00-0-vfio",
        "gpu-0000-17-00-0-vgpu",
        "gpu-0000-17-00-0-vgpu-l40s",
        "gpu-0000-17-00-0-vgpu-l40s-3",
        "gpu-0000-17-00-0-vgpu-l40s-8q-03",
        "gpu-0000-17-00-9-vgpu-l40s-8q-3",
        "gpu-0000-17-00-0-vgpu-l40s-8q-1000",
        "gpu-0000-17-00-0-mig-1g-10gb-6",
    ],
)
def test_other_names_mean_nothing(name: str) -> None:
    assert parse_vgpu_name(name) is None
