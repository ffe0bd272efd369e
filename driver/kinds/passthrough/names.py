"""Makes and reads the names of GPUs that are passed through: they say which GPUs one device has."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from driver.devices.limits import is_dns_label
from driver.devices.names import gpu_device_name, parse_gpu_device_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from driver.nvml.pci_address import PciAddress

_ADDRESS = r"[0-9a-f]{4,8}-[0-9a-f]{2}-[0-9a-f]{2}-[0-7]"
_NAME = re.compile(rf"gpu-(?P<addresses>{_ADDRESS}(?:-{_ADDRESS})*)-vfio", re.ASCII)


def passthrough_device_name(gpus: Sequence[PciAddress]) -> str | None:
    """The device name of GPUs that are passed through together: ``gpu-0000-8a-00-0-vfio`` for one.

    Those of several name all of them in their order: ``gpu-0000-8a-00-0-0000-8b-00-0-vfio``. None where that
    is longer than a name of a device can be.
    """
    addresses = "-".join(gpu_device_name(pci).removeprefix("gpu-") for pci in gpus)
    name = f"gpu-{addresses}-vfio"
    return name if is_dns_label(name) else None


def parse_passthrough_name(unshared: str) -> tuple[PciAddress, ...] | None:
    """The addresses of the GPUs in such a name, at least one; None for any other name."""
    match = _NAME.fullmatch(unshared)
    if match is None:
        return None
    named = re.findall(_ADDRESS, match["addresses"], re.ASCII)
    found = [pci for one in named if (pci := parse_gpu_device_name(f"gpu-{one}")) is not None]
    # Each name has one way to write it: in the order of the addresses, none twice.
    return tuple(found) if passthrough_device_name(sorted(set(found))) == unshared else None
