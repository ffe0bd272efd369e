"""What the kubelet plugin of a node knows that its slices have to respect: held devices, blocked places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from driver.nvml.mig import Placement
from driver.nvml.pci_address import PciAddress


@dataclass(frozen=True, slots=True)
class BlockedPlacement:
    """Something on a GPU keeps new devices from being made there.

    ``span`` is where it lies in the memory slices, None for all of the GPU. ``reason``: ``in-use``, a
    partition of a claim that has ended cannot be destroyed because a process still uses it;
    ``foreign-instance``, somebody else made a GPU instance; ``foreign-vgpu``, somebody else made a vGPU;
    ``mps-daemon``, the MPS daemon of a shared device does not run; ``driver-hangs``, a program of the driver
    that was to change how the GPU is shared did not end; ``vfio-user``, a process that belongs to no claim
    uses the GPU through vfio; ``device-plugin``, a pod has it from a device plugin; ``held-by-claim``, a
    claim has it that another driver prepared, so that no scheduler knows; ``deleted-claim``, a container has
    it from a claim that is gone from the API; ``healing``, an admin has it reset.
    ``message`` is for people.
    """

    pci: PciAddress
    span: Placement | None
    reason: Literal[
        "in-use",
        "foreign-instance",
        "foreign-vgpu",
        "mps-daemon",
        "driver-hangs",
        "held-by-claim",
        "deleted-claim",
        "device-plugin",
        "vfio-user",
        "healing",
    ]
    message: str


@dataclass(frozen=True, slots=True)
class Healed:
    """A GPU was reset then, by this node's clock: what was said of it before holds no longer."""

    pci: PciAddress
    unix_milliseconds: int


@dataclass(frozen=True, slots=True)
class NodeState:
    """The plugin's state of a node: the names of the devices that claims hold, sorted, and what is blocked.

    ``busy`` are the GPUs whose MIG mode the plugin is changing: a call into them may wait for as long.
    ``let_go`` is the number with which the plugin asks that no process has an NVML session, 0 where it does
    not. ``healed`` are the GPUs that were reset since the machine was started, each once with the last time,
    sorted.
    """

    held: tuple[str, ...] = ()
    blocked: tuple[BlockedPlacement, ...] = ()
    busy: tuple[PciAddress, ...] = ()
    let_go: int = 0
    healed: tuple[Healed, ...] = ()
