"""Writes the device metadata of one request (KEP-5304, metadata.resource.k8s.io), as bytes: pure.

A file is a stream of JSON objects that say the same in several versions of the API, the newest first. Who
reads it takes the first that it knows. Its types are in k8s.io/dynamic-resource-allocation/api/metadata.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from driver.devices.names import DRIVER_NAME

_VERSIONS = ("v1beta1", "v1alpha1")
"""KubeVirt 1.8 and 1.9, and all that is built with Kubernetes 1.36, read the older one alone."""


@dataclass(frozen=True, slots=True)
class ToldClaim:
    """The claim of the request.

    ``pod_claim_name`` is the pod's name for it, empty where no template made it.
    """

    namespace: str
    name: str
    uid: str
    pod_claim_name: str


@dataclass(frozen=True, slots=True)
class ToldDevice:
    """One device of the request, with attributes in the form of a ResourceSlice."""

    pool: str
    name: str
    attributes: Mapping[str, Any]


def document(claim: ToldClaim, request: str, devices: Iterable[ToldDevice]) -> bytes:
    """The file of a request; ``request`` is as the allocation has it, with its subrequest."""
    told: dict[str, Any] = {
        "metadata": {
            "name": claim.name,
            "namespace": claim.namespace,
            "uid": claim.uid,
            "generation": 1,
        },
    }
    if claim.pod_claim_name:
        told["podClaimName"] = claim.pod_claim_name
    told["requests"] = [{"name": request, "devices": [_device(device) for device in devices]}]
    # The versions differ in nothing but their name, so the rest is encoded once.
    rest = json.dumps(told, separators=(",", ":"))[1:]
    head = '{{"kind":"DeviceMetadata","apiVersion":"metadata.resource.k8s.io/{}",'
    return "".join(f"{head.format(version)}{rest}\n" for version in _VERSIONS).encode()


def _device(device: ToldDevice) -> dict[str, Any]:
    told: dict[str, Any] = {"driver": DRIVER_NAME, "pool": device.pool, "name": device.name}
    if device.attributes:
        told["attributes"] = dict(sorted(device.attributes.items()))
    return told
