"""Reads the field ``vgpu`` of a rule of the node configuration: which vGPUs a host makes of a GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from driver.devices.gpu_policy import GpuPolicy
from driver.kinds.kind import PolicyField
from driver.nvml.vgpu import vgpu_profile

FIELD, FORM = "vgpu", "vgpu"

# One list of profiles may be for all GPU models of a cluster.
_MOST_NAMES = 64

# A word and no number: all virtual functions of the GPU are turned on, as NVIDIA's sriov-manage does.
ENABLED = "enabled"

_PROFILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ]*(-[A-Za-z0-9]+){1,3}", re.ASCII)
SCHEMA: dict[str, Any] = {
    "description": "The vGPUs that a host makes of the GPU, by NVIDIA's names.",
    "type": "object",
    "additionalProperties": False,
    "required": ["profiles"],
    "properties": {
        "profiles": {
            "type": "array",
            "minItems": 1,
            "maxItems": _MOST_NAMES,
            "items": {"type": "string", "pattern": f"^{_PROFILE.pattern}$"},
        },
        "virtualFunctions": {
            "description": "Whether the driver turns on the virtual functions of a GPU that has none on. "
            "Without it the administrator of the host does that.",
            "enum": [ENABLED],
        },
    },
}


@dataclass(frozen=True, slots=True)
class VgpuOffer:
    """The profiles of the vGPUs that are offered, without the vendor: ``L40S-8Q``.

    ``enables_virtual``: if the virtual functions of a GPU are off, they are turned on.
    """

    profiles: tuple[str, ...]
    enables_virtual: bool = False


def read_vgpu(value: Any, path: str, errors: list[str]) -> VgpuOffer:
    """The meaning of the field's parsed ``value``; each mistake is added to ``errors`` with its path."""
    if not isinstance(value, dict):
        errors.append(f"{path}: must be a mapping with profiles")
        return VgpuOffer(())
    errors.extend(f"{path}.{key}: unknown field" for key in value if key not in SCHEMA["properties"])
    if "virtualFunctions" in value and value["virtualFunctions"] != ENABLED:
        errors.append(f"{path}.virtualFunctions: must be {ENABLED}, or absent")
    names = value.get("profiles")
    if not isinstance(names, list) or not 1 <= len(names) <= _MOST_NAMES:
        errors.append(f"{path}.profiles: must be a list of 1 to {_MOST_NAMES} profiles")
        return VgpuOffer(())
    found: list[str] = []
    for index, name in enumerate(names):
        profile = vgpu_profile(name) if isinstance(name, str) else ""
        if _PROFILE.fullmatch(profile) is None:
            errors.append(f"{path}.profiles[{index}]: must be a profile by NVIDIA's name, such as L40S-8Q")
        elif profile in found:
            errors.append(f"{path}.profiles[{index}]: {profile} appears more than once")
        else:
            found.append(profile)
    return VgpuOffer(tuple(found), enables_virtual="virtualFunctions" in value)


def offer_of(policy: GpuPolicy) -> VgpuOffer | None:
    """The field ``vgpu`` of a rule, None if it has none."""
    found = policy.more.get(FIELD)
    return found if isinstance(found, VgpuOffer) else None


class VgpuField(PolicyField):
    """The field ``vgpu``."""

    name = FIELD
    schema = SCHEMA

    read = staticmethod(read_vgpu)

    def implied_form(self, policy: GpuPolicy) -> str | None:
        """vGPUs only: a GPU of a vGPU host cannot be used by containers."""
        return FORM if offer_of(policy) is not None else None

    def contradictions(self, policy: GpuPolicy) -> Iterator[str]:
        """Forms for containers, which a vGPU host does not have."""
        offered = offer_of(policy) is not None
        if policy.form == FORM and not offered:
            yield "offer: must not be vgpu without the field vgpu, which names the profiles"
        if offered and policy.form != FORM:
            yield "offer: must be vgpu with the field vgpu: the host of vGPUs leaves no GPU to containers"
        if offered and (policy.shared or policy.mig.mode not in ("static", "off")):
            yield "vgpu: must not be used with mig or shared, which are for containers"
