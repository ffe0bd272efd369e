"""All checks of a node, in the order in which they are told."""

from __future__ import annotations

from gpuctl.doctor.check import Check
from gpuctl.doctor.inside.claim_checks import CLAIM_CHECKS
from gpuctl.doctor.inside.driver_checks import DRIVER_CHECKS
from gpuctl.doctor.inside.fabric_checks import FABRIC_CHECKS
from gpuctl.doctor.inside.machines.checks import MACHINE_CHECKS
from gpuctl.doctor.inside.machines.edition_checks import EDITION_CHECKS
from gpuctl.doctor.inside.memory_checks import MEMORY_CHECKS
from gpuctl.doctor.inside.runtime_checks import RUNTIME_CHECKS
from gpuctl.doctor.inside.seen import NodeSeen
from gpuctl.doctor.inside.socket_checks import SOCKET_CHECKS

INSIDE: tuple[Check[NodeSeen], ...] = (
    *DRIVER_CHECKS,
    *FABRIC_CHECKS,
    *EDITION_CHECKS,
    *RUNTIME_CHECKS,
    *SOCKET_CHECKS,
    *CLAIM_CHECKS,
    *MEMORY_CHECKS,
    *MACHINE_CHECKS,
)
