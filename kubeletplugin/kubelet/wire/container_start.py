"""What the container runtime's hook tells of a container that is about to run with a share of a GPU."""

from __future__ import annotations

from dataclasses import dataclass


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
