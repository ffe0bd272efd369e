"""What explanations are asked about: a snapshot of one node with four A30, claims and pods."""

from __future__ import annotations

from typing import Any

from gpuctl.explain.snapshot import Snapshot
from gpuctl.plan.planned import plan_node

NODE = {"metadata": {"name": "node-a", "labels": {"zone": "earth"}}, "spec": {}}
CLASS: dict[str, Any] = {
    "metadata": {"name": "gpu"},
    "spec": {"selectors": [{"cel": {"expression": 'device.driver == "gpu.nvidia.com"'}}]},
}


def snapshot(**changed: Any) -> Snapshot:
    found: dict[str, Any] = {
        "nodes": (NODE,),
        "slices": plan_node("a30-quad", "node-a", None).slices,
        "classes": (CLASS,),
        "claims": (),
        "taint_rules": (),
        "quotas": (),
        "unread": (),
    }
    return Snapshot(**{**found, **changed})


def claim(name: str = "mine", *, count: int = 1, **status: Any) -> dict[str, Any]:
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}},
        **({"status": status} if status else {}),
    }


def held(name: str, *devices: str) -> dict[str, Any]:
    results = [
        {"request": "gpus", "driver": "gpu.nvidia.com", "pool": "node-a/gpu.nvidia.com", "device": device}
        for device in devices
    ]
    users = [{"resource": "pods", "name": f"{name}-pod", "uid": "u"}]
    return claim(name, allocation={"devices": {"results": results}}, reservedFor=users)


def pod(phase: str = "Pending", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "train", "namespace": "default", "uid": "pod"},
        "spec": {"containers": [{"name": "main"}], **spec},
        "status": {"phase": phase},
    }
