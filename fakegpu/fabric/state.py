"""What changes of the NVLink fabric of a fake machine, and what spoils calls of its fabric manager."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from driver.nvml.api import FabricInfoState


@dataclass(frozen=True, slots=True)
class FabricFault:
    """A rule that spoils calls of the fabric manager: those of the method ``call`` of FabricManager.

    ``code`` is what it answers; without one it does not answer in time. ``times`` counts down with each call
    that it hits; None never ends. With ``after`` the call has done its work before.
    """

    call: str
    code: int | None = None
    times: int | None = None
    after: bool = False


@dataclass(frozen=True, slots=True)
class FabricState:
    """The fabric now. ``connected`` is what the switches do, ``active`` what the fabric manager believes.

    ``session`` counts its starts. ``shared`` is whether it runs in shared NVSwitch mode. ``waits`` is whether
    it was started with FABRIC_MODE_RESTART=1 and has no list of active partitions yet. ``gpus`` is how far
    the registration of GPUs has come, as NVML says it; if empty, the machine file says it.
    """

    running: bool = True
    session: int = 1
    shared: bool = False
    waits: bool = False
    active: tuple[int, ...] = ()
    connected: tuple[int, ...] = ()
    faults: tuple[FabricFault, ...] = ()
    gpus: FabricInfoState | Literal[""] = ""

    def after_boot(self) -> FabricState:
        """Nothing is connected, and the fabric manager was started in the same mode."""
        return FabricState(session=self.session + 1, shared=self.shared)

    def to_document(self) -> dict[str, Any]:
        """As a state file has it."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> FabricState:
        """Read what ``to_document`` gives; raises TypeError for anything else."""
        lists = {name: tuple(document[name]) for name in ("active", "connected") if name in document}
        faults = tuple(FabricFault(**fault) for fault in document.get("faults", ()))
        return cls(**{**document, **lists, "faults": faults})
