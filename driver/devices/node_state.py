"""What the kubelet plugin reports to the controller: the devices that claims hold, and blocked places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from driver.nvml.mig import Placement
from driver.nvml.pci_address import PciAddress

Hanging = Literal["nvidia-smi-hangs", "mps-hangs"]
"""What sets shares up and may hang: nvidia-smi for time-slices, the MPS supervisor."""


@dataclass(frozen=True, slots=True)
class BlockedPlacement:
    """Something on a GPU keeps new devices from being made there.

    ``span`` is where it lies in the memory slices, None for all of the GPU. ``message`` is for people.
    """

    pci: PciAddress
    span: Placement | None
    reason: Literal[
        # A partition of a claim that has ended cannot be destroyed, because a process still uses it.
        "in-use",
        # Somebody else made a GPU instance, or a vGPU.
        "foreign-instance",
        "foreign-vgpu",
        # The MPS daemon of a shared device does not run.
        "mps-daemon",
        # A program of the NVIDIA driver that should change how the GPU is shared did not end.
        "driver-hangs",
        # The same, for shares that are to be set up; everything else can still be made.
        "nvidia-smi-hangs",
        "mps-hangs",
        # A claim that another driver prepared has it; the scheduler does not know that.
        "held-by-claim",
        # A container has it from a claim that no longer exists in the API.
        "deleted-claim",
        # A pod has it from a device plugin.
        "device-plugin",
        # A process that belongs to no claim uses the GPU through vfio.
        "vfio-user",
        # An admin is having it reset.
        "healing",
    ]
    message: str


@dataclass(frozen=True, slots=True)
class Healed:
    """When a GPU was reset, by CLOCK_BOOTTIME; faults that were reported before are over."""

    pci: PciAddress
    boottime_milliseconds: int


@dataclass(frozen=True, slots=True)
class NodeState:
    """The kubelet plugin's state of a node."""

    # The names of the devices that claims hold, sorted.
    held: tuple[str, ...] = ()
    blocked: tuple[BlockedPlacement, ...] = ()
    # The GPUs whose MIG mode the plugin is changing: NVML calls into them may wait until that is done.
    busy: tuple[PciAddress, ...] = ()
    # The number of the plugin's request that every process closes its NVML session; 0 if it asks for nothing.
    let_go: int = 0
    # The GPUs that were reset since the machine was started, each with its last reset, sorted.
    healed: tuple[Healed, ...] = ()
