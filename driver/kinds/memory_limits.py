"""Says in attributes whether the NVIDIA driver holds containers to memory of a GPU; a field forbids it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from driver.devices.device import AttributeValue
from driver.devices.gpu_policy import GpuPolicy
from driver.devices.memory_limits import BY_CGROUP, FIRST_DRIVER, LIMITS_WITHHELD, MEMORY_LIMITS
from driver.hardware.call_effects import MEMORY_CALLS
from driver.hardware.gpu import Gpu, Inventory

FIELD = "memoryLimits"
SCHEMA: dict[str, Any] = {
    "description": "Whether the NVIDIA driver holds containers to memory of the GPU, where it can.",
    "type": "boolean",
}
"""The JSON schema of the field."""

FORBIDDEN = "the node configuration says memoryLimits: false"
CGROUP_V1 = "the node has cgroup v1, and NVML takes groups of v2 alone"
NOT_OF_THIS_GPU = "the NVIDIA driver does not support them for this GPU"
NO_MEMORY_TOLD = "NVML does not tell the memory of which a share has a part"


class MemoryLimitsField:
    """The field itself."""

    name = FIELD
    schema = SCHEMA

    def read(self, value: Any, path: str, errors: list[str]) -> bool:
        """The field's meaning; what is wrong with it is added to ``errors``."""
        if not isinstance(value, bool):
            errors.append(f"{path}: must be true or false")
        return value is not False

    def implied_form(self, policy: GpuPolicy) -> str | None:
        """None: it says nothing of the forms."""
        return None

    def contradictions(self, policy: GpuPolicy) -> Iterator[str]:
        """None: it forbids for every form what only some have."""
        return iter(())


def memory_limits(gpu: Gpu, inventory: Inventory, policy: GpuPolicy) -> dict[str, AttributeValue | None]:
    """Whether containers can be held to memory of the GPU, or why not; empty where other attributes say it.

    That is so with an NVIDIA driver that is too old. What is not known is absent.
    """
    if _branch(inventory.driver_version) < FIRST_DRIVER:
        return {}
    if _is_forbidden(policy):
        return {LIMITS_WITHHELD: FORBIDDEN}
    if not inventory.cgroup_v2:
        return {LIMITS_WITHHELD: CGROUP_V1}
    if gpu.memory_limits is None or not gpu.unanswered.isdisjoint(MEMORY_CALLS):
        return {}
    if not gpu.memory_limits:
        return {LIMITS_WITHHELD: NOT_OF_THIS_GPU}
    return {LIMITS_WITHHELD: NO_MEMORY_TOLD} if gpu.memory_bytes is None else {MEMORY_LIMITS: BY_CGROUP}


def limits_unknown(gpu: Gpu, policy: GpuPolicy) -> bool:
    """Whether it is not known yet if containers can be held to memory of the GPU."""
    return not _is_forbidden(policy) and not gpu.unanswered.isdisjoint({"memory_limits", *MEMORY_CALLS})


def _is_forbidden(policy: GpuPolicy) -> bool:
    """Whether the rule promises nothing, whatever the NVIDIA driver can hold."""
    return policy.more.get(FIELD) is False


def _branch(driver_version: str | None) -> int:
    """The branch of the NVIDIA driver: 615 of 615.36.01; 0 where it is not known."""
    major = (driver_version or "").partition(".")[0]
    return int(major) if major.isdecimal() else 0
