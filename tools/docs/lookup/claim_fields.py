"""The tables of the fields of opaque configurations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from driver.claims.opaque import API_VERSION, LARGEST_FACTOR, OWN_API_VERSION, SHARED_GPU
from driver.kinds.registry import KINDS
from tools.docs.lookup.marked import code, table


@dataclass(frozen=True, slots=True)
class Field:
    """A field by its path, with a value that is valid and one that is refused, which tests check.

    ``beside`` are the other fields that the document needs. ``of_class``: only a DeviceClass may have it.
    """

    path: str
    type: str
    limits: str
    default: str
    meaning: str
    taken: Any
    refused: Any
    beside: Mapping[str, Any] | None = None
    of_class: bool = False

    def document(self, kind: str, value: Any) -> dict[str, Any]:
        """A document of this kind with this value in the field."""
        made: dict[str, Any] = {
            "apiVersion": version_of(kind),
            "kind": kind,
            **json.loads(json.dumps(self.beside or {})),
        }
        *above, last = self.path.split(".")
        at = made
        for name in above:
            at = at.setdefault(name, {})
        at[last] = value
        return made


_SLICED = {"sharing": {"strategy": "TimeSlicing"}}
_MPS = {"sharing": {"strategy": "MPS"}}
_MPS_CONFIG = "sharing.mpsConfig."
_STRATEGY = Field(
    "sharing.strategy",
    "text",
    "`TimeSlicing`, `MPS`",
    "the way the device is offered",
    "how the pods of the claim share the device; for a share, only the strategy of that share",
    "MPS",
    "Both",
)
_MPS_FIELDS = (
    Field(
        f"{_MPS_CONFIG}defaultActiveThreadPercentage",
        "whole number",
        "0 to 100; 0 is refused at prepare",
        "the limit of the share, else none",
        "the part of the multiprocessors that a client may use, in percent",
        50,
        101,
        _MPS,
    ),
    Field(
        f"{_MPS_CONFIG}defaultPinnedDeviceMemoryLimit",
        "quantity",
        "at least 1Mi",
        "the limit of the share, else none",
        "the memory that a client may use on each device",
        "10Gi",
        "1Ki",
        _MPS,
    ),
    Field(
        f"{_MPS_CONFIG}defaultPerDevicePinnedMemoryLimit",
        "map of quantities",
        "each at least 1Mi",
        "none",
        "the same for single devices, by UUID or index",
        {"0": "10Gi"},
        {"0": "1Ki"},
        _MPS,
    ),
    Field(
        f"{_MPS_CONFIG}multiUser",
        "true or false",
        "",
        "`false`",
        "whether clients of several users may use the MPS server at once",
        taken=True,
        refused="yes",
        beside=_MPS,
    ),
)
_GPU_FIELDS = (
    _STRATEGY,
    Field(
        "sharing.timeSlicingConfig.interval",
        "text",
        "`Default`, `Short`, `Medium`, `Long`",
        "`Default`; for a share, that of its class",
        "how long a process computes before the next one does",
        "Short",
        "Forever",
        _SLICED,
    ),
    *_MPS_FIELDS,
)
_MEMORY_FIELDS = (
    Field(
        "memory.parts",
        "map of quantities",
        "keys are names of containers; each value at least 512Mi, all together at most what the claim has",
        "none",
        "the memory of the containers with these names",
        {"main": "6Gi"},
        {"main": "1Mi"},
    ),
    Field(
        "memory.each",
        "quantity",
        "at least 512Mi",
        "equal parts of the rest",
        "the most memory that any other container gets",
        "1Gi",
        "1Mi",
    ),
    Field(
        "memory.burst.factor",
        "number",
        f"1 to {LARGEST_FACTOR}; only in a DeviceClass",
        "no burst",
        "a claim may use this many times its share while no other claim is guaranteed the memory",
        1.5,
        0.5,
        of_class=True,
    ),
    Field(
        "memory.burst.toFree",
        "true or false",
        "not with `factor`; only in a DeviceClass",
        "`false`",
        "whether a claim may use all memory that no claim is guaranteed",
        taken=True,
        refused="all",
        of_class=True,
    ),
)
FIELDS: Mapping[str, tuple[Field, ...]] = {
    "GpuConfig": _GPU_FIELDS,
    SHARED_GPU: (*_GPU_FIELDS, *_MEMORY_FIELDS),
    "MigDeviceConfig": (_STRATEGY, *_MPS_FIELDS),
    "VfioDeviceConfig": (
        Field(
            "iommu.backendPolicy",
            "text",
            "`LegacyOnly`, `PreferIommuFD`",
            "`LegacyOnly`",
            "the vfio interface through which a virtual machine gets its GPU",
            "PreferIommuFD",
            "Both",
        ),
        Field(
            "iommu.enableAPIDevice",
            "true or false",
            "",
            "`true`",
            "whether the container gets the IOMMU's device node, which the virtual machine monitor needs",
            taken=False,
            refused="no",
        ),
    ),
}
"""The fields of each kind of document."""


def version_of(kind: str) -> str:
    """The apiVersion of a kind."""
    return OWN_API_VERSION if kind == SHARED_GPU else API_VERSION


def field_tables() -> str:
    """A table for each kind of document."""
    return "\n".join(_part(kind, fields) for kind, fields in FIELDS.items())


def takers(kind: str) -> list[str]:
    """The names of the devices that take a kind of document."""
    wanted = "GpuConfig" if kind == SHARED_GPU else kind
    return list(dict.fromkeys(one.described for one in KINDS if one.opaque == wanted))


def _part(kind: str, fields: tuple[Field, ...]) -> str:
    # SharedGpuConfig has all fields of GpuConfig, whose table comes before its own.
    own = _MEMORY_FIELDS if kind == SHARED_GPU else fields
    rows = [
        (code(one.path), one.type, one.limits, one.default, one.meaning, code(json.dumps(one.taken)))
        for one in own
    ]
    shared = "" if kind == "VfioDeviceConfig" else " or a share of one"
    more = "" if own == fields else " It has the fields of `GpuConfig`, and these:"
    head = f"### {kind}\n`apiVersion: {version_of(kind)}`, for {' or '.join(takers(kind))}{shared}.{more}\n\n"
    return head + table(("field", "type", "limits", "default", "meaning", "example"), rows)
