"""The name of a device for virtual machines says which GPUs it has, in one way."""

from __future__ import annotations

import pytest

from driver.kinds.passthrough.kind import parse_passthrough_name, passthrough_device_name
from driver.nvml.pci_address import PciAddress

GPUS = [PciAddress.parse(f"0000:{bus:02x}:00.0") for bus in (0x07, 0x0F, 0x47, 0x4E, 0x87)]


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_a_name_is_read_back(count: int) -> None:
    name = passthrough_device_name(GPUS[:count])
    assert name is not None
    assert parse_passthrough_name(name) == tuple(GPUS[:count])


def test_one_gpu_is_named_like_the_whole_gpu() -> None:
    assert passthrough_device_name(GPUS[:1]) == "gpu-0000-07-00-0-vfio"
    assert passthrough_device_name(GPUS[:2]) == "gpu-0000-07-00-0-0000-0f-00-0-vfio"


def test_more_gpus_than_a_name_holds_have_none() -> None:
    assert passthrough_device_name(GPUS) is None


def test_a_domain_of_eight_digits_is_read() -> None:
    far = PciAddress.parse("10000:01:00.0")
    assert parse_passthrough_name(passthrough_device_name([far]) or "") == (far,)


@pytest.mark.parametrize(
    "name",
    [
        "gpu-0000-07-00-0",
        "gpu-0000-07-00-0-vfio\n",
        "gpu-0000-07-00-8-vfio",
        "gpu-0000-0F-00-0-vfio",
        "gpu-0000-0f-00-0-0000-07-00-0-vfio",
        "gpu-0000-07-00-0-0000-07-00-0-vfio",
        "gpu--vfio",
        "",
    ],
)
def test_what_no_node_publishes_is_no_name(name: str) -> None:
    assert parse_passthrough_name(name) is None
