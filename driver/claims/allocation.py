"""Reads a ResourceClaim (resource.k8s.io/v1) for the kubelet plugin: which of this driver's devices it got.

A claim is input from outside. The API server has checked its structure but not its opaque configuration.
This module trusts neither.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from driver.errors import ClaimBlocked, ClaimRefused

_POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
"""The annotation of a claim that a template made (PodResourceClaimAnnotation of resource.k8s.io/v1)."""

_UUID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}", re.ASCII)


@dataclass(frozen=True, slots=True)
class AllocatedDevice:
    """One allocation result of this driver.

    ``request`` is ``<request>`` or ``<request>/<subrequest>``. ``consumed_capacity`` has quantities as text
    and is empty for devices that are not shared. ``device_class`` is the DeviceClass that the request names,
    empty if the claim's spec has none.
    """

    request: str
    pool: str
    device: str
    share_id: str | None = None
    admin_access: bool = False
    consumed_capacity: tuple[tuple[str, str], ...] = ()
    device_class: str = ""

    @property
    def top_request(self) -> str:
        """The request without its subrequest."""
        # The kubelet compares the claims of containers with this part only.
        return self.request.partition("/")[0]


@dataclass(frozen=True, slots=True)
class ClaimConfig:
    """An opaque configuration for this driver; empty ``requests`` means every request.

    ``parameters`` is not checked yet and may be any JSON. ``names_requests`` is whether it is meant for the
    devices of certain requests: those that the claim names in it, or those for the class that has it.
    """

    source: str
    requests: tuple[str, ...]
    parameters: Any
    names_requests: bool = False

    @property
    def is_of_class(self) -> bool:
        """Whether it comes from the DeviceClass, which an admin wrote, and not from the claim."""
        return self.source == "FromClass"

    def applies_to(self, device: AllocatedDevice) -> bool:
        """Whether it configures the device: by name of its request, or of its request with the subrequest."""
        return not self.requests or device.request in self.requests or device.top_request in self.requests


@dataclass(frozen=True, slots=True)
class Claim:
    """An allocated claim, reduced to the devices and configurations of one driver, in allocation order.

    ``pod_claim_name`` is the name of the claim within its pod, from the annotation. A template's claims have
    it; in a claim made by hand the annotation may be anything.
    """

    namespace: str
    name: str
    uid: str
    devices: tuple[AllocatedDevice, ...]
    configs: tuple[ClaimConfig, ...]
    pod_claim_name: str = ""

    def configs_of(self, device: AllocatedDevice) -> tuple[ClaimConfig, ...]:
        """The configurations of ``device``, weakest first: class before claim, and later ones win."""
        # Schedulers up to 1.36 repeat an entry once for each matching request; applying it twice is harmless.
        matching = [config for config in self.configs if config.applies_to(device)]
        return tuple(sorted(matching, key=lambda config: not config.is_of_class))


def read_claim(stored: Mapping[str, Any], uid: str, driver: str) -> Claim:
    """Read the API object of the claim with this ``uid``; results of other drivers are skipped.

    Raises ClaimRefused if the claim was replaced or is malformed, and ClaimBlocked if it is not allocated
    (any more), which the scheduler may still change.
    """
    try:
        metadata = stored["metadata"]
        name = f"{metadata['namespace']}/{metadata['name']}"
        # The kubelet names a claim by namespace, name and UID; a claim of the same name may be a later one.
        if metadata["uid"] != uid:
            raise ClaimRefused(
                f"claim {name} has UID {metadata['uid']}, not UID {uid}: it was deleted and created again",
                "delete the pod, so that a new one uses the claim that exists now",
            )
        allocation = stored.get("status", {}).get("allocation")
        if allocation is None:
            raise ClaimBlocked(
                f"claim {name} is not allocated",
                "wait for the scheduler, or delete the pod if it was bound by hand",
            )
        devices, spec = allocation.get("devices", {}), (stored.get("spec") or {}).get("devices") or {}
        classes = _classes(spec)
        return Claim(
            metadata["namespace"],
            metadata["name"],
            uid,
            tuple(
                _device(result, classes)
                for result in devices.get("results", ())
                if result["driver"] == driver
            ),
            tuple(_configs(devices.get("config", ()), spec.get("config") or (), driver)),
            str((metadata.get("annotations") or {}).get(_POD_CLAIM_NAME, "")),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ClaimRefused(
            f"the claim with UID {uid} is not a resource.k8s.io/v1 ResourceClaim: {error!r}",
            "delete the claim and create it again",
        ) from error


def _classes(spec: Mapping[str, Any]) -> dict[str, str]:
    """The DeviceClass of each request, and of each subrequest as ``request/subrequest``."""
    found: dict[str, str] = {}
    for request in spec.get("requests") or ():
        name = str(request.get("name", ""))
        found[name] = str((request.get("exactly") or {}).get("deviceClassName", ""))
        for one in request.get("firstAvailable") or ():
            found[f"{name}/{one.get('name', '')}"] = str(one.get("deviceClassName", ""))
    return found


def _device(result: Mapping[str, Any], classes: Mapping[str, str]) -> AllocatedDevice:
    return AllocatedDevice(
        str(result["request"]),
        str(result["pool"]),
        str(result["device"]),
        _share_id(result.get("shareID")),
        result.get("adminAccess") is True,
        tuple(sorted((str(key), str(value)) for key, value in result.get("consumedCapacity", {}).items())),
        classes.get(str(result["request"]), ""),
    )


def _share_id(value: Any) -> str | None:
    """The UUID of a share, None if there is none; raises TypeError for anything else."""
    # It becomes part of the name of a CDI device, so nothing else may get through.
    if value is None or (isinstance(value, str) and _UUID.fullmatch(value)):
        return value
    raise TypeError("shareID is not a UUID")


def _configs(entries: Any, written: Any, driver: str) -> list[ClaimConfig]:
    """The entries for this driver of an allocation; ``written`` are those of the claim's spec."""
    found = []
    for entry in entries:
        opaque = entry.get("opaque")
        if opaque is not None and opaque["driver"] == driver:
            source, requests = str(entry.get("source", "")), tuple(entry.get("requests") or ())
            # Since Kubernetes 1.37 the scheduler leaves the requests out if they are all of the claim's.
            alike = [one.get("requests") for one in written if one.get("opaque") == opaque]
            names_requests = bool(requests) or source == "FromClass" or (bool(alike) and all(alike))
            found.append(ClaimConfig(source, requests, opaque["parameters"], names_requests))
    return found
