"""Finds claims of a pod that no container uses: their devices are held, and nobody sees them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuctl.explain.findings import Finding

Object = Mapping[str, Any]


def unused_claims(pod: Object) -> tuple[Finding, ...]:
    """A finding for each entry of the pod's ``resourceClaims`` that no container names."""
    spec = pod["spec"]
    used = {
        one["name"]
        for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
        for one in (container.get("resources") or {}).get("claims") or ()
    }
    return tuple(
        Finding(
            "unused-claim",
            f"no container of the pod uses its claim {entry['name']}, so none sees a device of it",
            f"give a container resources: {{claims: [{{name: {entry['name']}}}]}}, and create the pod anew",
        )
        for entry in spec.get("resourceClaims") or ()
        if entry["name"] not in used
    )
