"""Where a function sits on the PCI bus, as NVML, sysfs and the API write it."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Self

_PCI = re.compile(
    r"^(?P<domain>[0-9a-f]{4,8}):(?P<bus>[0-9a-f]{2}):(?P<device>[0-9a-f]{2})\.(?P<function>[0-7])$",
    re.IGNORECASE,
)


class PciAddress(str):
    """Where a function sits on the PCI bus; sorts as the kernel enumerates.

    It is the text of sysfs and of resource.kubernetes.io/pciBusID: lower case, with a domain of four digits.
    So it is a file name, a JSON value and a key as it is. Only functions behind Intel's VMD have longer
    domains; these sort as text.
    """

    __slots__ = ("bus", "device", "domain", "function")

    domain: int
    bus: int
    device: int
    function: int

    def __new__(cls, domain: int, bus: int, device: int, function: int) -> Self:
        """Of its four numbers."""
        address = super().__new__(cls, f"{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
        address.domain, address.bus, address.device, address.function = domain, bus, device, function
        return address

    def __getnewargs__(self) -> tuple[int, int, int, int]:  # type: ignore[override] # a copy is made of numbers
        """What a copy is made of."""
        return self.domain, self.bus, self.device, self.function

    @staticmethod
    @lru_cache(maxsize=1024)  # a node has few addresses, and each claim names one several times
    def parse(text: str) -> PciAddress:
        """Read ``0000:8a:00.0`` or NVML's eight-digit upper-case form; raises ValueError otherwise."""
        match = _PCI.match(text)
        if match is None:
            raise ValueError(f"{text!r} is not a PCI address like 0000:8a:00.0")
        return PciAddress(*(int(match[part], 16) for part in ("domain", "bus", "device", "function")))
