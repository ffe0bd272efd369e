"""Makes and reads the names under which devices and pools are published."""

from __future__ import annotations

import re

from driver.devices.sharing import SharedForm, shared_suffix, split_shared_suffix
from driver.errors import ConfigError
from driver.nvml.pci_address import PciAddress

DRIVER_NAME = "gpu.nvidia.com"
"""The name of NVIDIA's own DRA driver, so that claims and classes written for it work unchanged."""

CHANNELS_DRIVER_NAME = "channels.gpu.nvidia.com"
"""The DRA driver of IMEX channels. NVIDIA's compute-domain plugin has another name and may run beside it."""

CLIQUE_LABEL = "nvidia.com/gpu.clique"
"""The label of a node's NVLink clique: that of GPU feature discovery, which pod affinity uses, too."""

_GPU = re.compile(r"^gpu-([0-9a-f]{4,8})-([0-9a-f]{2})-([0-9a-f]{2})-([0-7])\Z")
_NODE = re.compile(r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?\Z")
_MAX_NODE_NAME_CHARACTERS = 253
_MAX_POOL_NAME_CHARACTERS = 253
"""PoolNameMaxLength of k8s.io/api/resource/v1."""


def gpu_device_name(pci: PciAddress) -> str:
    """The device name of a whole GPU: ``gpu-0000-8a-00-0``."""
    # By PCI address: unlike the minor number of the device node, it is the same after a reboot.
    return f"gpu-{pci.domain:04x}-{pci.bus:02x}-{pci.device:02x}-{pci.function:x}"


def parse_gpu_device_name(name: str) -> PciAddress | None:
    """The PCI address in a whole GPU's device name; None for any other name."""
    match = _GPU.match(name)
    if match is None:
        return None
    domain, bus, device, function = match.groups()
    return PciAddress.parse(f"{domain}:{bus}:{device}.{function}")


def shared_device_name(device: str, form: SharedForm) -> str:
    """The name under which a GPU or a partition is shared: ``gpu-0000-8a-00-0-ts-4``."""
    return device + shared_suffix(form)


def unshared_name(name: str) -> str:
    """The name of the GPU or partition without the suffix that says how it is shared."""
    return split_shared_suffix(name)[0]


def pool_name(node: str, driver: str = DRIVER_NAME) -> str:
    """The name of a node's pool: ``<node>/<driver>``."""
    # Schedulers up to 1.36.3 keep counters by pool name alone. With the plain node name, which other drivers
    # use for their pool, they would mix up the counters of both.
    return f"{node}/{driver}"


def checked_node_name(name: str) -> str:
    """The name itself, if a Node (RFC 1123 subdomain) and a pool can have it; raises ConfigError."""
    if len(name) > _MAX_NODE_NAME_CHARACTERS or not _NODE.match(name):
        raise ConfigError(
            f"--node-name {name[:_MAX_NODE_NAME_CHARACTERS]!r} is not the name of a node",
            "give the name that kubectl get nodes shows",
        )
    if len(pool_name(name)) > _MAX_POOL_NAME_CHARACTERS:
        raise ConfigError(
            f"--node-name {name!r} has {len(name)} characters, too many for the name of a pool",
            f"the name of the node may have at most {_MAX_POOL_NAME_CHARACTERS - len(pool_name(''))} "
            "characters",
        )
    return name
