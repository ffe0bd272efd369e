"""The attributes that say whether the NVIDIA driver can limit containers' memory, and the field for them."""

from __future__ import annotations

from typing import Any

from driver.devices.device import AttributeValue
from driver.devices.gpu_policy import GpuPolicy
from driver.devices.memory_limits import BY_CGROUP, FIRST_DRIVER, LIMITS_WITHHELD, MEMORY_LIMITS
from driver.hardware.call_effects import MEMORY_CALLS
from driver.hardware.gpu import Gpu, Inventory
from driver.kinds.kind import PolicyField

FIELD = "memoryLimits"
SCHEMA: dict[str, Any] = {
    "description": "Whether the NVIDIA driver limits the GPU memory of containers, where it can.",
    "type": "boolean",
}
"""The JSON schema of the field."""

FORBIDDEN = "the node configuration says memoryLimits: false"
CGROUP_V1 = "the node has cgroup v1, but NVML needs cgroup v2"
NOT_OF_THIS_GPU = "the NVIDIA driver does not support them for this GPU"
MEMORY_UNKNOWN = "NVML does not report the memory that is to be shared"


class MemoryLimitsField(PolicyField):
    """The field ``memoryLimits`` of a rule, by which an admin can forbid such limits."""

    name = FIELD
    schema = SCHEMA

    def read(self, value: Any, path: str, errors: list[str]) -> bool:
        """The value of the field; a mistake is added to ``errors``."""
        if not isinstance(value, bool):
            errors.append(f"{path}: must be true or false")
        return value is not False


def memory_limits(gpu: Gpu, inventory: Inventory, policy: GpuPolicy) -> dict[str, AttributeValue | None]:
    """The attribute that says whether containers' memory of the GPU can be limited, or why not.

    Empty if that is not known yet.
    """
    # The published driver version already says that the driver is too old.
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
    return {LIMITS_WITHHELD: MEMORY_UNKNOWN} if gpu.memory_bytes is None else {MEMORY_LIMITS: BY_CGROUP}


def limits_unknown(gpu: Gpu, policy: GpuPolicy) -> bool:
    """Whether it is not known yet if containers' memory of the GPU can be limited."""
    return not _is_forbidden(policy) and not gpu.unanswered.isdisjoint({"memory_limits", *MEMORY_CALLS})


def _is_forbidden(policy: GpuPolicy) -> bool:
    """Whether the rule forbids limits, whatever the NVIDIA driver can do."""
    return policy.more.get(FIELD) is False


def _branch(driver_version: str | None) -> int:
    """The branch of the NVIDIA driver, such as 615 for 615.36.01; 0 if the version is not known."""
    major = (driver_version or "").partition(".")[0]
    return int(major) if major.isdecimal() else 0
