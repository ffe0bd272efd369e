"""How much GPU memory a container of a claim may have and uses: what metrics and status tell."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ContainerMemory:
    """What a claim lets one live container have of one GPU, in bytes.

    ``device`` is the allocated device and ``cdi_device`` its CDI name. ``pci`` is the address of the GPU as
    sysfs writes it, and ``uuid`` its UUID, empty where that is not known. ``namespace``, ``pod`` and
    ``container`` are empty where the runtime told none.

    ``soft_bytes`` and ``hard_bytes`` are this claim's part. ``used_bytes`` is what the container has of the
    GPU (nvmlGetMemoryLimits_v1_t.currentUsed), None where NVML did not tell. A container with shares of
    several claims on one GPU has one pair of limits there, their sum, and NVML does not tell which share it
    uses: ``used_bytes`` is then divided among them in the order of the claims, each filled before the next.
    """

    claim_uid: str
    cdi_device: str
    device: str
    pci: str
    uuid: str
    namespace: str
    pod: str
    container: str
    soft_bytes: int
    hard_bytes: int
    used_bytes: int | None
