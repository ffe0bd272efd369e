"""Which GPUs or MIG devices of a fake machine a CUDA process sees, and how many clients MPS lets in there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from driver.nvml.pci_address import PciAddress
    from fakegpu.machine.fake_machine import FakeMachine

MOST_CLIENTS, MOST_CLIENTS_BEFORE_VOLTA = 48, 16
_VOLTA = (7, 0)
_MOST_SLICES = 7


@dataclass(frozen=True, slots=True)
class CudaDevice:
    """One device as CUDA counts them; ``share`` is the part of its GPU that it computes with."""

    uuid: str
    pci: PciAddress
    share: float = 1.0


def visible_devices(machine: FakeMachine, text: str | None) -> tuple[CudaDevice, ...]:
    """The devices that CUDA_VISIBLE_DEVICES names by index or UUID; None is all GPUs.

    As in CUDA, the first name that there is not ends the list. Raises NvmlError as NVML does.
    """
    nvml = machine.nvml()
    nvml.init()
    gpus = [nvml.device_by_index(index) for index in range(nvml.device_count())]
    known = {str(index): CudaDevice(gpu.uuid(), gpu.pci()) for index, gpu in enumerate(gpus)}
    whole = tuple(known.values())
    if text is None:
        return whole
    known |= {device.uuid: device for device in whole}
    for gpu in gpus:
        for mig in gpu.mig_devices():
            known[mig.uuid] = CudaDevice(mig.uuid, gpu.pci(), mig.compute_instance_slices / _MOST_SLICES)
    seen: list[CudaDevice] = []
    for name in text.split(","):
        if name not in known:
            break
        seen.append(known[name])
    return tuple(seen)


def most_clients(machine: FakeMachine, devices: tuple[CudaDevice, ...]) -> int:
    """How many clients a server for these devices takes; a MIG device takes its share, one at least."""
    volta = machine.spec.product.compute_capability >= _VOLTA
    most = MOST_CLIENTS if volta else MOST_CLIENTS_BEFORE_VOLTA
    return max(1, int(most * min((device.share for device in devices), default=1.0)))
