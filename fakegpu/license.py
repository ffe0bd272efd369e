"""The license of a fake vGPU guest: what its license client has got, which ends and is renewed."""

# ruff: noqa: D102 - the protocol of driver.nvml.api documents licensable_features

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from driver.nvml.license import LicensableFeature

if TYPE_CHECKING:
    from fakegpu.session import FakeSession
    from fakegpu.spec import MachineSpec, Slot


@dataclass(frozen=True, slots=True)
class FakeLicense:
    """Whether a vGPU has its license, and when that ends: ISO 8601 with a zone, None for never."""

    licensed: bool = True
    expires: str | None = None

    @classmethod
    def from_document(cls, document: object) -> FakeLicense:
        """Read from a state file; raises TypeError when it is something else."""
        if not isinstance(document, dict):
            raise TypeError("license is no mapping")
        return cls(**document)


LICENSED = FakeLicense()


class FakeLicenseCalls:
    """What FakeDevice answers about licenses."""

    _session: FakeSession
    _spec: MachineSpec
    _slot: Slot
    _number: int

    def licensable_features(self) -> tuple[LicensableFeature, ...]:
        _, gpu = self._session.gpu_call("licensable_features", self._slot.pci, self._number)
        product, held = self._spec.product.license, gpu.license
        if product is None:
            return ()
        expires = datetime.fromisoformat(held.expires) if held.licensed and held.expires else None
        return (LicensableFeature(product, licensed=held.licensed, enabled=True, expires=expires),)
