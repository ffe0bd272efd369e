"""Reads the field ``passthrough`` of a rule: whether a GPU is offered to virtual machines too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from driver.devices.gpu_policy import GpuPolicy
from driver.kinds.kind import PolicyField

FORM = "passthrough"
FIELD = "passthrough"
SCHEMA: dict[str, Any] = {
    "description": "Whether the GPU is offered to virtual machines as well.",
    "type": "boolean",
}
"""The JSON schema of the field."""


class PassthroughField(PolicyField):
    """The field ``passthrough``."""

    name = FIELD
    schema = SCHEMA

    def read(self, value: Any, path: str, errors: list[str]) -> bool:
        """The value of the field; a mistake is added to ``errors``."""
        if not isinstance(value, bool):
            errors.append(f"{path}: must be true or false")
        return value is True

    def contradictions(self, policy: GpuPolicy) -> Iterator[str]:
        """Fields that exclude an offer of passthrough alone."""
        if policy.form != FORM:
            return
        if policy.more.get(FIELD) is False:
            yield "passthrough: must not be false with offer: passthrough"
        if policy.mig.mode in ("dynamic", "layout"):
            yield "offer: must not be passthrough for partitions: set passthrough: true to offer both"
        if policy.shared:
            yield "offer: must not be passthrough with shared: set passthrough: true to offer both"


def is_wanted(policy: GpuPolicy | None) -> bool:
    """Whether the policy offers a GPU to virtual machines."""
    return policy is not None and (policy.form == FORM or policy.more.get(FIELD) is True)


def is_alone(policy: GpuPolicy) -> bool:
    """Whether the policy offers the GPU in no other form."""
    return policy.form == FORM
