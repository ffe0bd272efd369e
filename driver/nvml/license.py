"""What NVML tells a vGPU guest of its licenses, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime


@dataclass(frozen=True, slots=True)
class LicensableFeature:
    """A feature of NVIDIA's vGPU software that takes a license (nvmlGridLicensableFeature_t).

    ``product`` is the name of what is licensed, such as ``NVIDIA Virtual Compute Server``. ``enabled`` is
    whether this machine uses the feature, ``licensed`` whether it has a license for it now. ``expires`` is
    when that ends unless it is renewed, in UTC; None where it never ends, or NVML does not tell.
    """

    product: str
    licensed: bool
    enabled: bool
    expires: datetime | None = None
