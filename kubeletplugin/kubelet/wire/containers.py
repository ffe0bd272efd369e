"""Values about a container with devices of a claim: its name, its claim, its start, and its memory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ContainerName:
    """The name of a container, the same for the kubelet and the container runtime.

    All three are empty if unknown.
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


@dataclass(frozen=True, slots=True)
class ClaimInUse:
    """A claim whose devices a container of a pod has, with their CDI names without vendor and class."""

    namespace: str
    claim: str
    pod: str
    cdi_devices: frozenset[str]


class NotAnswered(Exception):
    """This instance of the plugin is stopping; the caller has to ask the next one."""


@dataclass(frozen=True, slots=True)
class ContainerStart:
    """A container before its first process runs: its control group exists, and its init waits."""

    # Arguments of the hook in the claim's CDI spec.
    claim_uid: str
    cdi_device: str
    # The id in the container runtime.
    container_id: str
    # The text of /proc/PID/cgroup of the container's init, as seen on the host.
    proc_cgroup: str
    # From the runtime's annotations, and only for messages; empty if there are none.
    namespace: str = ""
    pod: str = ""
    container: str = ""


@dataclass(frozen=True, slots=True)
class ContainerMemory:
    """The memory of one GPU that a claim allows one live container, in bytes.

    A container with shares of several claims on one GPU has one limit there, their sum.
    """

    claim_uid: str
    cdi_device: str
    # Empty if the container runtime gave none.
    namespace: str
    pod: str
    container: str
    # This claim's part of the container's limit.
    hard_bytes: int
    # What the container uses of the GPU (nvmlGetMemoryLimits_v1_t.currentUsed), None if NVML did not say.
    # NVML does not say which share a container uses, so with shares of several claims the use is divided
    # among the claims in their order, each filled before the next.
    used_bytes: int | None
