"""A device as prepare plans it, before anything is touched."""

from __future__ import annotations

from dataclasses import dataclass

from driver.claims.allocation import AllocatedDevice
from driver.claims.opaque import Burst, Document, MemoryDivision, MpsSettings
from driver.devices.sharing import Share, SharedForm, Strategy
from driver.kinds.kind import DeviceName

_NOTHING, _NO_LIMITS = Share(), MpsSettings()


@dataclass(frozen=True, slots=True)
class Wish:
    """How one device is to be shared.

    ``form`` is how it is offered and ``share`` what the claim took of it, both None where the claim has
    the device for itself. ``interval`` is the time-slice that the configuration asks for, ``class_interval``
    the one that the device's class does; both are empty where nothing was asked for. ``asked`` is whether a
    configuration asks for the strategy of a device that is offered so. ``memory`` is how the configuration
    divides the claim's memory, None where it says nothing; ``burst`` is what the device's class allows.
    """

    strategy: Strategy
    form: SharedForm | None = None
    share: Share = _NOTHING
    interval: str = ""
    mps: MpsSettings = _NO_LIMITS
    asked: bool = False
    class_interval: str = ""
    memory: MemoryDivision | None = None
    burst: Burst | None = None


@dataclass(frozen=True, slots=True)
class PlannedDevice:
    """One device to prepare: what was allocated, and what its name says it is.

    ``config`` is the opaque configuration that applies to it, of the kind that the device takes; None where
    nothing was configured. A kind that has to know it later keeps it in the device's record.
    """

    allocated: AllocatedDevice
    name: DeviceName
    cdi_device: str
    wish: Wish | None = None
    config: Document | None = None
