"""Fills in what the API server fills in where a claim, or the claim of a template, leaves it out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]
Object = dict[str, Any]


def defaulted_claim_spec(spec: Json) -> Object:
    """A ResourceClaimSpec with its defaults; the one that is given stays as it is.

    A request, or each of its alternatives, asks by default for exactly one device; a toleration compares with
    Equal. Go: SetDefaults_ExactDeviceRequest and SetDefaults_DeviceSubRequest in pkg/apis/resource/v1.
    """
    devices = spec.get("devices") or {}
    if not devices.get("requests"):
        return dict(spec)
    requests = [_defaulted_request(request) for request in devices["requests"]]
    return {**spec, "devices": {**devices, "requests": requests}}


def _defaulted_request(request: Json) -> Object:
    found = dict(request)
    if found.get("exactly") is not None:
        found["exactly"] = _defaulted_alternative(found["exactly"])
    if found.get("firstAvailable"):
        found["firstAvailable"] = [_defaulted_alternative(one) for one in found["firstAvailable"]]
    return found


def _defaulted_alternative(asked: Json) -> Object:
    """What an ExactDeviceRequest and a DeviceSubRequest have in common."""
    found = {**asked, "allocationMode": asked.get("allocationMode") or "ExactCount"}
    if found["allocationMode"] == "ExactCount" and not found.get("count"):
        found["count"] = 1
    if found.get("tolerations"):
        found["tolerations"] = [
            {**one, "operator": one.get("operator") or "Equal"} for one in found["tolerations"]
        ]
    return found
