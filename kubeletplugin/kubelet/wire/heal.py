"""How far the healing of a GPU is, and what is in its way: what the plugin sends to the caller."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from driver.nvml.pci_address import PciAddress

HealStep = Literal["looked", "waits", "resets", "healed", "failed"]
"""``looked``: nothing was asked for but a look. ``waits``: for what is in the way. ``healed`` and ``failed``
come last."""


@dataclass(frozen=True, slots=True)
class HoldingClaim:
    """A claim that has something of a GPU, or of which something is left there."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        """As people write it."""
        return f"{self.namespace}/{self.name}" if self.name else self.uid


@dataclass(frozen=True, slots=True)
class UsingProcess:
    """A process that has a GPU open; ``pod_uid`` is empty where it is in no pod."""

    pid: int
    name: str
    pod_uid: str = ""


@dataclass(frozen=True, slots=True)
class HealProgress:
    """One step. ``gpus`` are reset together; ``message`` says for people why it failed."""

    step: HealStep
    gpus: tuple[PciAddress, ...] = ()
    claims: tuple[HoldingClaim, ...] = ()
    processes: tuple[UsingProcess, ...] = ()
    message: str = ""


@dataclass(frozen=True, slots=True)
class HealWish:
    """What was asked for: a GPU by its PCI address, its UUID or the name of a device, and whether to reset.

    ``wait_seconds`` is how long what is in the way is waited for.
    """

    gpu: str
    reset: bool = False
    wait_seconds: float = 0.0


Heal = Callable[[HealWish], Iterator[HealProgress]]
"""Does it, step by step; who does not ask for the next step calls it off, unless the reset has begun."""
