"""Says which GPUs of a node are to get virtual functions: pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driver.errors import ConfigError
from driver.kinds.vgpu.field import offer_of
from driver.kinds.vgpu.forms import may_get_virtual

if TYPE_CHECKING:
    from driver.hardware.gpu import Gpu, Inventory
    from driver.nvml.pci_address import PciAddress
    from driver.policy.rules import NodeConfig


def virtual_to_enable(inventory: Inventory, config: NodeConfig | None) -> frozenset[PciAddress]:
    """The GPUs of vGPU hosts that have no virtual function on, where their rule says ``virtualFunctions``."""
    if config is None:
        return frozenset()
    return frozenset(
        gpu.pci for gpu in inventory.gpus if may_get_virtual(gpu, inventory) and _asks(gpu, config)
    )


def _asks(gpu: Gpu, config: NodeConfig) -> bool:
    try:
        offer = offer_of(config.policy_of(gpu))
    except ConfigError:
        return False  # the offers tell why
    return offer is not None and offer.enables_virtual
