"""The checks of a node that change nothing: those that doctor has for a node without a cluster, and more."""

from __future__ import annotations

from gpuctl.doctor.check import Check
from gpuctl.doctor.inside.checks import INSIDE
from gpuctl.doctor.inside.seen import NodeSeen
from gpuctl.verify.checks.kernel_checks import KERNEL_CHECKS
from gpuctl.verify.checks.offered import offered
from gpuctl.verify.subject import Subject

WITHOUT_CLUSTER = (
    *("driver-root", "driver-edition", "same-driver", "nvml", "device-nodes", "fabric"),
    *("vgpu-license", "cgroups"),
    *("iommu", "vfio-modules", "vfio-safety", "virtual-functions"),
)
"""The checks of doctor that need neither a cluster nor this driver's processes."""


def _of_node(known: Check[NodeSeen]) -> Check[Subject]:
    """A check of doctor as one of a subject."""
    return Check(known.name, known.looks_at, known.fails_when, lambda subject: known.look(subject.seen))


_BY_NAME = {known.name: known for known in INSIDE}
NODE_CHECKS: tuple[Check[Subject], ...] = (
    *(_of_node(_BY_NAME[name]) for name in WITHOUT_CLUSTER),
    offered,
    *KERNEL_CHECKS,
)
"""The checks of the node, in their order."""
