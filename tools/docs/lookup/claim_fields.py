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
    "as the device is offered",
    "how the pods of the claim share the device; of a share, the strategy that it has anyway",
    "MPS",
    "Both",
)
_MPS_FIELDS = (
    Field(
        f"{_MPS_CONFIG}defaultActiveThreadPercentage",
        "whole number",
        "0 to 100; 0 is refused at prepare",
        "what the share has; else no limit",
        "the part of the multiprocessors that a client may use",
        50,
        101,
        _MPS,
    ),
    Field(
        f"{_MPS_CONFIG}defaultPinnedDeviceMemoryLimit",
        "quantity",
        "at least 1Mi",
        "what the share has; else no limit",
        "the memory of each device that a client may use",
        "10Gi",
        "1Ki",
        _MPS,
    ),
    Field(
        f"{_MPS_CONFIG}defaultPerDevicePinnedMemoryLimit",
        "map of quantities",
        "each at least 1Mi",
        "none",
        "the same for single devices, by UUID or number",
        {"0": "10Gi"},
        {"0": "1Ki"},
        _MPS,
    ),
    Field(
        f"{_MPS_CONFIG}multiUser",
        "true or false",
        "",
        "`false`",
        "whether clients of several users may be served at once",
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
        "`Default`; of a share what its class says",
        "how long one process computes before the next",
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
        "each at least 512Mi, together no more than the claim has; keys are names of containers",
        "none",
        "what containers of these names get",
        {"main": "6Gi"},
        {"main": "1Mi"},
    ),
    Field(
        "memory.each",
        "quantity",
        "at least 512Mi",
        "equal parts of the rest",
        "the most that any other container gets",
        "1Gi",
        "1Mi",
    ),
    Field(
        "memory.burst.factor",
        "number",
        f"1 to {LARGEST_FACTOR}; in a DeviceClass alone",
        "no burst",
        "up to so many times its share, while no claim is guaranteed that",
        1.5,
        0.5,
        of_class=True,
    ),
    Field(
        "memory.burst.toFree",
        "true or false",
        "not beside `factor`; in a DeviceClass alone",
        "`false`",
        "all that no claim is guaranteed",
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
            "by which interface of vfio a virtual machine gets its GPU",
            "PreferIommuFD",
            "Both",
        ),
        Field(
            "iommu.enableAPIDevice",
            "true or false",
            "",
            "`true`",
            "whether the container gets the node through which a monitor reaches the IOMMU",
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
    rows = [
        (code(one.path), one.type, one.limits, one.default, one.meaning, code(json.dumps(one.taken)))
        for one in fields
    ]
    shared = "" if kind == "VfioDeviceConfig" else ", and for shares of such"
    head = f"## {kind}\n`apiVersion: {version_of(kind)}`. For {' and '.join(takers(kind))}{shared}.\n\n"
    return head + table(("field", "type", "limits", "default", "means", "example"), rows)
