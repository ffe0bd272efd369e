"""All checks from outside, in the order in which they are shown."""

from __future__ import annotations

from gpuctl.doctor.check import Check
from gpuctl.doctor.outside.admission import POLICY_CHECKS, WEBHOOK_CHECKS
from gpuctl.doctor.outside.classes import CLASS_CHECKS
from gpuctl.doctor.outside.memory_checks import MEMORY_CHECKS
from gpuctl.doctor.outside.neighbors import NEIGHBOR_CHECKS
from gpuctl.doctor.outside.publishing import PUBLISHING_CHECKS
from gpuctl.doctor.outside.rights import RIGHTS_CHECKS
from gpuctl.doctor.outside.seen import ClusterSeen
from gpuctl.doctor.outside.versions import VERSION_CHECKS
from gpuctl.doctor.outside.workloads import WORKLOAD_CHECKS

OUTSIDE: tuple[Check[ClusterSeen], ...] = (
    *VERSION_CHECKS,
    *RIGHTS_CHECKS,
    *WORKLOAD_CHECKS,
    *PUBLISHING_CHECKS,
    *CLASS_CHECKS,
    *MEMORY_CHECKS,
    *POLICY_CHECKS,
    *WEBHOOK_CHECKS,
    *NEIGHBOR_CHECKS,
)
