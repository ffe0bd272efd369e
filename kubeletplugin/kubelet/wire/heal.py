"""The progress of healing a GPU, and what is in its way, as the plugin sends it to the caller."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from driver.nvml.pci_address import PciAddress

HealStep = Literal["looked", "waits", "resets", "healed", "failed"]
"""``looked``: the answer to a request without a reset. ``waits``: claims or processes are in the way.
``healed`` or ``failed`` comes last."""


@dataclass(frozen=True, slots=True)
class HoldingClaim:
    """A claim that holds a part of a GPU, or that has left something on it."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        """Namespace and name; the UID if the name is unknown."""
        return f"{self.namespace}/{self.name}" if self.name else self.uid


@dataclass(frozen=True, slots=True)
class UsingProcess:
    """A process that has a GPU open; ``pod_uid`` is empty if it is in no pod."""

    pid: int
    name: str
    pod_uid: str = ""


@dataclass(frozen=True, slots=True)
class HealProgress:
    """One step of a healing."""

    step: HealStep
    # The GPUs that are reset together.
    gpus: tuple[PciAddress, ...] = ()
    # What is in the way.
    claims: tuple[HoldingClaim, ...] = ()
    processes: tuple[UsingProcess, ...] = ()
    # The error of a failed step.
    message: str = ""


@dataclass(frozen=True, slots=True)
class HealRequest:
    """A request to heal a GPU."""

    # A PCI address, a UUID or the name of a device.
    gpu: str
    # Without it, only claims and processes in the way are reported.
    reset: bool = False
    # How long to wait for claims and processes that are in the way.
    wait_seconds: float = 0.0


Heal = Callable[[HealRequest], Iterator[HealProgress]]
"""Heals a GPU step by step. Not asking for the next step cancels it, unless the reset has begun."""
