"""All checks from outside, in the order in which they are shown."""

from __future__ import annotations

from gpuctl.doctor.check import Check, Result, run_checks
from gpuctl.doctor.outside.admission import ADMISSION_CHECKS
from gpuctl.doctor.outside.classes import CLASS_CHECKS
from gpuctl.doctor.outside.neighbors import NEIGHBOR_CHECKS
from gpuctl.doctor.outside.publishing import PUBLISHING_CHECKS
from gpuctl.doctor.outside.rights import RIGHTS_CHECKS, own_rights
from gpuctl.doctor.outside.seen import ClusterSeen
from gpuctl.doctor.outside.versions import VERSION_CHECKS
from gpuctl.doctor.outside.workloads import WORKLOAD_CHECKS, is_installed, workloads

CLUSTER = "cluster"
OUTSIDE: tuple[Check[ClusterSeen], ...] = (
    *VERSION_CHECKS,
    *RIGHTS_CHECKS,
    *WORKLOAD_CHECKS,
    *PUBLISHING_CHECKS,
    *CLASS_CHECKS,
    *ADMISSION_CHECKS,
    *NEIGHBOR_CHECKS,
)
_BEFORE = {one.name for one in (*VERSION_CHECKS, own_rights, workloads)}
"""The checks that say something before the driver is installed."""


def check_cluster(seen: ClusterSeen) -> tuple[Result, ...]:
    """The results of all checks; those of the driver's objects are skipped where it is not installed."""
    results = run_checks(CLUSTER, OUTSIDE, seen)
    if is_installed(seen):
        return results
    why = "the driver is not installed"
    return tuple(
        one if one.check in _BEFORE else Result(CLUSTER, one.check, "skipped", why) for one in results
    )
