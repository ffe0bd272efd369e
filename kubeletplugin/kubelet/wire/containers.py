"""Values about a container with a share of a GPU: its name, its start, and its memory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ContainerName:
    """The name of a container, by which both the kubelet and the container runtime know it.

    All three are empty where they are not known.
    """

    namespace: str
    pod: str
    container: str

    def __bool__(self) -> bool:
        """Whether it names a container."""
        return bool(self.container)

    def __str__(self) -> str:
        return (
            f"{self.container} of pod {self.namespace}/{self.pod}" if self else "a container without a name"
        )


class NotAnswered(Exception):
    """This instance of the plugin ends: whoever asks is to ask the next one."""


@dataclass(frozen=True, slots=True)
class ContainerStart:
    """A container whose processes have not run yet: its control group is there, and its init waits.

    ``claim_uid`` and ``cdi_device`` are those of the hook's arguments, which the CDI spec of the claim gives.
    ``container_id`` is the runtime's. ``namespace``, ``pod`` and ``container`` are names as the runtime's
    annotations have them, for people, empty where there are none. ``proc_cgroup`` is the text of
    /proc/PID/cgroup of the container's init, as the host has it.
    """

    claim_uid: str
    cdi_device: str
    container_id: str
    proc_cgroup: str
    namespace: str = ""
    pod: str = ""
    container: str = ""


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
