"""The state of a fake machine's NVLink fabric, and the rules that spoil calls of its fabric manager."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from driver.nvml.api import FabricInfoState


@dataclass(frozen=True, slots=True)
class FabricFault:
    """A rule that spoils calls of the fabric manager: those of the method ``call`` of FabricManager.

    ``code`` is the error that they end with; without one they time out. ``times`` counts down with each call
    that the rule hits; None never ends. With ``after`` a call does its work before it fails.
    """

    call: str
    code: int | None = None
    times: int | None = None
    after: bool = False


Registration = FabricInfoState | Literal["failed"]
"""How far the registration of GPUs has come; ``failed``: it is complete, with an error."""


@dataclass(frozen=True, slots=True)
class FabricState:
    """The fabric. ``connected`` are the partitions that the NVSwitches connect.

    The rest is about the fabric manager: ``active`` are the partitions that it takes to be active,
    ``session`` counts its starts, ``shared`` is whether it runs in shared NVSwitch mode, and ``waits``
    whether it was started with FABRIC_MODE_RESTART=1 and has no list of active partitions yet. ``gpus`` is
    how far the registration of GPUs has come, as NVML reports it; empty for the value of the machine file.
    """

    running: bool = True
    session: int = 1
    shared: bool = False
    waits: bool = False
    active: tuple[int, ...] = ()
    connected: tuple[int, ...] = ()
    faults: tuple[FabricFault, ...] = ()
    gpus: Registration | Literal[""] = ""

    def after_boot(self) -> FabricState:
        """The state after a reboot: nothing is connected; the fabric manager has started in the same mode."""
        return FabricState(session=self.session + 1, shared=self.shared)
