"""Where a function sits on the PCI bus, as NVML, sysfs and the API write it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_PCI = re.compile(
    r"^(?P<domain>[0-9a-f]{4,8}):(?P<bus>[0-9a-f]{2}):(?P<device>[0-9a-f]{2})\.(?P<function>[0-7])$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, order=True)
class PciAddress:
    """Where a function sits on the PCI bus; sorts as the kernel enumerates."""

    domain: int
    bus: int
    device: int
    function: int

    @classmethod
    def parse(cls, text: str) -> PciAddress:
        """Read ``0000:8a:00.0`` or NVML's eight-digit upper-case form; raises ValueError otherwise."""
        return _parsed(text)

    def __str__(self) -> str:
        """The form of sysfs and of resource.kubernetes.io/pciBusID: lower case, four-digit domain."""
        return f"{self.domain:04x}:{self.bus:02x}:{self.device:02x}.{self.function:x}"


@lru_cache(maxsize=1024)
def _parsed(text: str) -> PciAddress:
    """A node has few addresses, and each claim names one several times."""
    match = _PCI.match(text)
    if match is None:
        raise ValueError(f"{text!r} is not a PCI address like 0000:8a:00.0")
    return PciAddress(*(int(match[part], 16) for part in ("domain", "bus", "device", "function")))
