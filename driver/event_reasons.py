"""Every reason of the events that the driver posts: on which objects, how bad, what it means, what to do.

docs/errors-and-events.md shows them. No other event can be posted, since ``EventRecorder`` takes only these.
The words are stable, since people have rules for them.
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

    CLIQUE_LABEL_WRONG = (
        "CliqueLabelWrong",
        ("Node",),
        "Warning",
        "the label `nvidia.com/gpu.clique` that somebody else set names another clique than the node's GPUs",
        "correct or remove the label",
    )
    PREPARE_WAITS = (
        "PrepareWaits",
        ("ResourceClaim",),
        "Warning",
        (
            "something temporary is in the way, and the message names it; if it is another claim, the "
            "plugin's log names that claim"
        ),
        (
            "nothing at first: the plugin keeps trying for up to 40 s. If no MPS supervisor answers, "
            "start [gpu-dra-mps](sharing.md#mps) on the node"
        ),
    )
    PREPARE_FAILED = (
        "PrepareFailed",
        ("ResourceClaim",),
        "Warning",
        "the claim's devices could not be prepared; the message says why",
        (
            "`(retryable)`: the kubelet tries again after 60 to 90 s. `(permanent)`: the pod will never "
            "start; do what the message says, usually delete the pod and its claim, and create both again"
        ),
    )
    SHARING_INCOMPLETE = (
        "SharingIncomplete",
        ("ResourceClaim",),
        "Warning",
        (
            "the pod runs, but a part of its sharing could not be set up, such as a time-slice on a GPU "
            "without time-slices"
        ),
        "nothing, or choose another class",
    )
    UNPREPARE_FAILED = (
        "UnprepareFailed",
        ("ResourceClaim",),
        "Warning",
        "the claim's devices could not be released; the message says what is in the way",
        "the kubelet tries again; remove what the message names",
    )
    UNPREPARE_INCOMPLETE = (
        "UnprepareIncomplete",
        ("ResourceClaim",),
        "Warning",
        (
            "the pod has ended, but something, often a process, still uses one of its devices; the device "
            "stays occupied and tainted"
        ),
        "end the process, often a monitor; the plugin tries again every 15 s",
    )
    MEMORY_LIMIT_NOT_HELD = (
        "MemoryLimitNotHeld",
        ("ResourceClaim",),
        "Warning",
        "a running container has lost its memory limit, and it could not be set again",
        "check the GPU's health and the kernel log; the plugin tries again every 15 s",
    )
    MEMORY_LIMIT_HELD = (
        "MemoryLimitHeld",
        ("ResourceClaim",),
        "Normal",
        "a lost memory limit is in force again",
        "nothing",
    )
    GPU_SICK = (
        "GpuSick",
        ("Node", "ResourceClaim", "Pod"),
        "Warning",
        (
            "something is wrong with a GPU or one of its partitions; the message says with which, and "
            "what. The event is also posted on claims that have a device of it, and on their pods; [the "
            "claim's status](claims.md#status-of-the-devices) says the same"
        ),
        (
            "as the message and the [taint](health.md#taints) say; running pods go on, and only their "
            "programs can tell whether they still work"
        ),
    )
    GPU_WELL = (
        "GpuWell",
        ("Node", "ResourceClaim", "Pod"),
        "Normal",
        "a fault of a GPU, or of the devices of a claim, is over",
        "nothing; restart processes that lost their GPU in the meantime",
    )
    # The programs of tenants can cause this at will, so it is posted rarely.
    GPU_FAULT = (
        "GpuFault",
        ("Node",),
        "Warning",
        (
            "the NVIDIA driver reported an XID that programs cause (13, 31, 43 and others): the GPU is "
            "well, but a program on it has failed. Posted at most once an hour for each GPU and XID"
        ),
        "read the log of the program",
    )
    GPU_WITHHELD = (
        "GpuWithheld",
        ("Node",),
        "Warning",
        (
            "a GPU is not offered, or not in some form; the message says why, such as its MIG mode, its "
            "layout, or something that NVML does not report"
        ),
        "as the message says",
    )
    # The same word as before, since the GPU is withheld all the same, but here somebody wants it so.
    GPU_HIDDEN = (
        "GpuWithheld",
        ("Node",),
        "Normal",
        "a rule of the node configuration keeps the GPU from being offered",
        "nothing, or change the rule",
    )
    NODE_CONFIGURATION_WRONG = (
        "NodeConfigurationWrong",
        ("Node",),
        "Warning",
        "the node configuration has changed and has a mistake; the previous rules stay in force",
        "correct the [node configuration](configuration.md)",
    )
    DEVICE_NOT_PUBLISHED = (
        "DeviceNotPublished",
        ("Node",),
        "Warning",
        "a device exceeds a limit of the API; all other devices are published",
        "as the message says",
    )
    SLICE_FIELDS_DROPPED = (
        "SliceFieldsDropped",
        ("Node",),
        "Warning",
        "a feature gate of the API server is off, so it drops a field of slices; nothing is published",
        "enable the feature gate that the message names; it is asked again every 15 minutes",
    )
    KUBERNETES_TOO_OLD = (
        "KubernetesTooOld",
        ("Node",),
        "Warning",
        "the API server is older than 1.36, so nothing is published",
        "upgrade it; the controller notices within a minute",
    )
    TWO_INSTALLATIONS = (
        "TwoInstallations",
        ("Node",),
        "Warning",
        (
            "several kubelet plugins have been serving for ten minutes: there are two releases, or an "
            "update hangs"
        ),
        "[two releases](troubleshooting.md#two-releases)",
    )
    OTHER_DRIVER = (
        "OtherDriver",
        ("Node",),
        "Warning",
        (
            "[another driver](compare-and-migrate.md#from-nvidias-dra-driver) with the name `gpu.nvidia.com` "
            "is on the node, or has left claims behind"
        ),
        "remove it, or end the pods that the plugin's log names",
    )
    DEVICE_PLUGIN_BESIDE = (
        "DevicePluginBeside",
        ("Node",),
        "Warning",
        "a [device plugin](compare-and-migrate.md#both-on-one-node) on the node offers the same GPUs",
        "remove it from the node",
    )
    DEVICE_PLUGIN_GONE = (
        "DevicePluginGone",
        ("Node",),
        "Normal",
        "no device plugin on the node offers GPUs any more",
        "nothing",
    )
    VGPU_UNLICENSED = (
        "VgpuUnlicensed",
        ("Node",),
        "Warning",
        (
            "a [vGPU](virtual-machines.md#the-license) has no license, and CUDA stops working on it after a "
            "while"
        ),
        "check that `nvidia-gridd` runs, and read its log",
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
        "the license of a vGPU expires soon and was not renewed in time",
        "check whether `nvidia-gridd` reaches the license server",
    )
    ROOM_MADE = (
        "RoomMade",
        ("Pod",),
        "Normal",
        (
            "the [preemptor](tiers-and-quotas.md#preemption) evicted the pods that the message names, so "
            "that this one gets their devices"
        ),
        "nothing: the pod starts once they have ended",
    )
    ROOM_WOULD_BE_MADE = (
        "RoomWouldBeMade",
        ("Pod",),
        "Normal",
        "the preemptor runs with `--dry-run`; without it, it would evict the pods that the message names",
        "nothing, or end the dry run",
    )
    PREEMPTED_FOR_DEVICES = (
        "PreemptedForDevices",
        ("Pod",),
        "Normal",
        "the preemptor evicted the pod for one of higher priority, which gets its devices",
        "nothing: if the pod has a controller, that makes it again",
    )
    WOULD_BE_PREEMPTED = (
        "WouldBePreempted",
        ("Pod",),
        "Normal",
        "the preemptor runs with `--dry-run`; without it, it would evict this pod",
        "give the pod a higher priority if it must stay",
    )
    ROOM_NOT_JUDGED = (
        "RoomNotJudged",
        ("Pod",),
        "Warning",
        (
            "the pod has something that the preemptor cannot judge, such as pod affinity or a volume claim, "
            "so it evicts nobody for it"
        ),
        "remove what the message names, or make room yourself: [gpuctl explain](gpuctl.md)",
    )
    ROOM_REFUSED = (
        "RoomRefused",
        ("Pod",),
        "Warning",
        "a PodDisruptionBudget, or the API server, does not allow the evictions that the pod needs",
        "nothing: the preemptor tries again when that changes; or relax the budget",
    )
    ROOM_LOST = (
        "RoomLost",
        ("Pod",),
        "Warning",
        (
            "room was made for the pod, but it did not get it: another pod took the devices, an evicted pod "
            "does not end, or the scheduler does not place the pod"
        ),
        "as the message says; the preemptor tries again, each time after twice as long",
    )
