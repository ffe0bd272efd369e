"""The configurations of sharing that claims and classes carry."""

from typing import Any

from tests.clusters import Object
from tests.gpus import DRIVER_NAME

MIB = 1 << 20
GIB = 1 << 30
H100_MIB = 81559 - 454
"""The memory that shares of one GPU of the node in the fixture have."""


def config(
    sharing: Object | None, *requests: str, kind: str = "GpuConfig", source: str = "FromClaim"
) -> list[Object]:
    """An opaque configuration of the claim or of its class, for these requests or for all."""
    parameters = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": kind, "sharing": sharing}
    opaque = {"driver": DRIVER_NAME, "parameters": parameters}
    return [{"source": source, "requests": list(requests), "opaque": opaque}]


def slicing(interval: str, *requests: str, source: str = "FromClaim") -> list[Object]:
    """A configuration that asks for a time-slice."""
    sharing = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": interval}}
    return config(sharing, *requests, source=source)


def class_slicing(interval: str, *requests: str) -> list[Object]:
    """A class's configuration that gives a time-slice."""
    return slicing(interval, *requests, source="FromClass")


def mps(*requests: str, kind: str = "GpuConfig", **settings: Any) -> list[Object]:
    """A configuration that asks for MPS with these limits."""
    return config({"strategy": "MPS", "mpsConfig": settings}, *requests, kind=kind)
