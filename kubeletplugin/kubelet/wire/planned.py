"""A device as prepare plans it, before anything is changed."""

from __future__ import annotations

from dataclasses import dataclass

from driver.claims.allocation import AllocatedDevice
from driver.claims.opaque import Document, MpsSettings
from driver.devices.sharing import Share, SharedForm, Strategy
from driver.kinds.kind import DeviceName

_NOTHING, _NO_LIMITS = Share(), MpsSettings()


@dataclass(frozen=True, slots=True)
class SharingRequest:
    """How one device is to be shared, from its name, the allocation and the opaque configurations."""

    strategy: Strategy
    # The form in which the device is published, None if the claim has the device for itself.
    form: SharedForm | None = None
    # What the scheduler gave the claim of the device.
    share: Share = _NOTHING
    # The time-slice in the claim's configuration, empty if there is none.
    interval: str = ""
    mps: MpsSettings = _NO_LIMITS
    # Whether a configuration names the strategy. A claim that has all of a fractional device shares it among
    # its own pods only then.
    has_strategy: bool = False
    # The time-slice in the configuration of the device's class, empty if there is none.
    class_interval: str = ""


@dataclass(frozen=True, slots=True)
class PlannedDevice:
    """One device to prepare: its allocation and its parsed name."""

    allocated: AllocatedDevice
    name: DeviceName
    cdi_device: str
    sharing: SharingRequest | None = None
    # The opaque configuration that applies to it, None if there is none. A kind that needs it later keeps it
    # in the device's record.
    config: Document | None = None
