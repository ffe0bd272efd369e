"""Every reason of the events that the driver posts: on which objects, how bad, what it means, what to do.

docs/events.md shows this table. No other event can be posted, since ``EventRecorder`` takes only these. The
words are stable, since people have rules for them.
"""

from __future__ import annotations

from enum import Enum
from typing import Literal

EventType = Literal["Normal", "Warning"]
"""The types of a core/v1 Event."""


class EventReason(Enum):
    """``word`` is the event's reason, ``on`` the kinds of objects on which it is posted.

    ``meaning`` and ``way_out`` are for people, in Markdown for a table's cell.
    """

    def __init__(
        self, word: str, on: tuple[str, ...], severity: EventType, meaning: str, way_out: str
    ) -> None:
        self.word = word
        self.on = on
        self.severity: EventType = severity
        self.meaning = meaning
        self.way_out = way_out

    PREPARE_WAITS = (
        "PrepareWaits",
        ("ResourceClaim",),
        "Warning",
        (
            "something that passes stands in the way; the message names it, and of another claim the "
            "plugin's log says which"
        ),
        (
            "nothing at first: the call is tried for up to 40 s. Where it says that no MPS supervisor "
            "answers, start [gpu-dra-mps](mps.md) on the node"
        ),
    )
    PREPARE_FAILED = (
        "PrepareFailed",
        ("ResourceClaim",),
        "Warning",
        "the claim's devices were not made ready, and why",
        (
            "`(retryable)`: the kubelet comes back in 60 to 90 s. `(permanent)`: the same pod will "
            "never start; do what the message says, usually correct the claim or delete the pod"
        ),
    )
    SHARING_INCOMPLETE = (
        "SharingIncomplete",
        ("ResourceClaim",),
        "Warning",
        (
            "the pod runs, and something of its sharing could not be had, such as a time-slice on a GPU"
            " that has none"
        ),
        "nothing, or choose another class",
    )
    UNPREPARE_FAILED = (
        "UnprepareFailed",
        ("ResourceClaim",),
        "Warning",
        "the claim's devices could not be taken back; the message names what is in the way",
        "the kubelet tries again; take away what the message names",
    )
    UNPREPARE_INCOMPLETE = (
        "UnprepareIncomplete",
        ("ResourceClaim",),
        "Warning",
        (
            "the pod has ended, and something of its devices is still used, by a process often: the "
            "place stays taken and tainted"
        ),
        "end the process, often a monitor; it is tried again every 15 s",
    )
    MEMORY_LIMIT_NOT_HELD = (
        "MemoryLimitNotHeld",
        ("ResourceClaim",),
        "Warning",
        "the limit of a running container is gone and cannot be set again",
        "look at the GPU's health and the kernel log; it is tried every 15 s",
    )
    MEMORY_LIMIT_HELD = (
        "MemoryLimitHeld",
        ("ResourceClaim",),
        "Normal",
        "a limit that was gone is held again",
        "nothing",
    )
    GPU_SICK = (
        "GpuSick",
        ("Node", "ResourceClaim", "Pod"),
        "Warning",
        (
            "something is wrong with a GPU, or with a partition of it: the message names it, and what; on a "
            "claim and its pods, where they have a device of it, which [the claim's status]"
            "(claims.md#what-the-status-tells) tells as well"
        ),
        (
            "as the message says, and the [taint](operations.md#what-you-may-see); pods run on, and whether "
            "they still work is theirs to find out"
        ),
    )
    GPU_WELL = (
        "GpuWell",
        ("Node", "ResourceClaim", "Pod"),
        "Normal",
        "what was wrong with a GPU is over, or with the devices of a claim",
        "nothing; a process that has lost its GPU meanwhile has to be started anew",
    )
    # The programs of tenants can cause this at will, so it is posted rarely.
    GPU_FAULT = (
        "GpuFault",
        ("Node",),
        "Warning",
        (
            "an Xid that is the fault of an application (13, 31, 43 and others): the GPU is well, and a "
            "program on it has failed; told once an hour for each GPU and Xid"
        ),
        "look at the log of the program",
    )
    GPU_WITHHELD = (
        "GpuWithheld",
        ("Node",),
        "Warning",
        (
            "a GPU is not offered, or not in a form of it, and why: MIG mode, its layout, what NVML "
            "does not tell"
        ),
        "as the message says",
    )
    # The same word as before, since the GPU is withheld all the same, but here somebody wants it so.
    GPU_HIDDEN = (
        "GpuWithheld",
        ("Node",),
        "Normal",
        "a rule of the node configuration says that a GPU is not offered",
        "nothing, or change the rule",
    )
    NODE_CONFIGURATION_WRONG = (
        "NodeConfigurationWrong",
        ("Node",),
        "Warning",
        "the file was changed and is wrong; the rules before it stay",
        "correct the [node configuration](node-configuration.md)",
    )
    DEVICE_NOT_PUBLISHED = (
        "DeviceNotPublished",
        ("Node",),
        "Warning",
        "a device breaks a limit of the API; the others are published",
        "as the message says",
    )
    SLICE_FIELDS_DROPPED = (
        "SliceFieldsDropped",
        ("Node",),
        "Warning",
        "the API server stores slices without a field, since it runs without a feature gate",
        "enable the gate that the message names",
    )
    KUBERNETES_TOO_OLD = (
        "KubernetesTooOld",
        ("Node",),
        "Warning",
        "the API server is older than 1.36: nothing is published",
        "upgrade it, which is noticed within a minute",
    )
    TWO_INSTALLATIONS = (
        "TwoInstallations",
        ("Node",),
        "Warning",
        "several kubelet plugins have served for ten minutes: two releases, or an update that hangs",
        "[two releases](troubleshooting.md#two-releases)",
    )
    OTHER_DRIVER = (
        "OtherDriver",
        ("Node",),
        "Warning",
        (
            "[another driver](from-nvidia-driver.md#what-you-may-see) of the name `gpu.nvidia.com` is "
            "on the node, or has left claims"
        ),
        "remove it, or end the pods that the plugin's log names",
    )
    DEVICE_PLUGIN_BESIDE = (
        "DevicePluginBeside",
        ("Node",),
        "Warning",
        "a [device plugin](from-device-plugin.md#both-on-one-node) on the node offers GPUs as well",
        "remove it from the node",
    )
    DEVICE_PLUGIN_GONE = (
        "DevicePluginGone",
        ("Node",),
        "Normal",
        "no device plugin offers GPUs on the node any more",
        "nothing",
    )
    VGPU_UNLICENSED = (
        "VgpuUnlicensed",
        ("Node",),
        "Warning",
        ("a [vGPU](vgpu-guests.md#the-license) has no license, and CUDA stops to work on it after a while"),
        "see that `nvidia-gridd` runs, and what it logs",
    )
    VGPU_LICENSED = (
        "VgpuLicensed",
        ("Node",),
        "Normal",
        "a vGPU has its license",
        "nothing",
    )
    VGPU_LICENSE_ENDS = (
        "VgpuLicenseEnds",
        ("Node",),
        "Warning",
        "the license of a vGPU ends soon and was not renewed in time",
        "see whether `nvidia-gridd` reaches the license server",
    )
