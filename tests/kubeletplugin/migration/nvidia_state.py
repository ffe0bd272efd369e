"""Writes what NVIDIA's driver leaves on a node, in its own layouts: checkpoint, CDI specs, slices.

The shapes are those of ``tests/vectors/nvidia-driver``, which that driver wrote itself on pretended GPUs with
two claims prepared, and for partitions, MPS and passthrough those of its source.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kubeletplugin.kubelet.wire.names import former_cdi_spec_file_name
from kubeletplugin.migration.checkpoint import checksum
from tests.clusters import Object


def compact(value: Any) -> str:
    """JSON as Go writes it."""
    return json.dumps(value, separators=(",", ":"))


def gpu(uuid: str, device: Object) -> Object:
    return {"gpu": {"info": {"uuid": uuid}, "device": device}, "mig": None}


def partition(uuid: str, parent: str, minor: int, instance: int, compute: int, device: Object) -> Object:
    concrete = {
        "parentMinor": minor,
        "giId": instance,
        "ciId": compute,
        "migUUID": uuid,
        "parentUUID": parent,
    }
    return {"gpu": None, "mig": {"concrete": concrete, "device": device}}


def told(uid: str, pool: str, name: str, request: str = "gpu", cdi_class: str = "claim") -> Object:
    """What the kubelet was answered for a device."""
    cdi = f"{uid}-{name}" if cdi_class == "claim" else name
    return {
        "Requests": [request],
        "PoolName": pool,
        "DeviceName": name,
        "CDIDeviceIDs": [f"k8s.gpu.nvidia.com/{cdi_class}={cdi}"],
    }


def claim(devices: Sequence[Object], pods: Sequence[str] = ("train",), **more: Any) -> Object:
    """A claim as the checkpoint has it; ``more`` are members of its allocation's devices, such as config."""
    answers = [told["device"] for one in devices for told in one.values() if told is not None]
    results = [
        {
            "request": answer["Requests"][0],
            "driver": "gpu.nvidia.com",
            "pool": answer["PoolName"],
            "device": answer["DeviceName"],
        }
        for answer in answers
    ]
    reserved = [{"resource": "pods", "name": pod, "uid": f"u-{pod}"} for pod in pods]
    return {
        "checkpointState": "PrepareCompleted",
        "status": {"allocation": {"devices": {"results": results, **more}}, "reservedFor": reserved},
        "preparedDevices": [{"devices": list(devices), "configState": {}}],
    }


def checkpoint(claims: dict[str, Object], boot_id: str = "", *, v2: bool = True) -> bytes:
    """The file with these claims by UID, in both layouts or in the first alone."""
    completed = {
        uid: {
            name: value for name, value in one.items() if name not in ("checkpointState", "name", "namespace")
        }
        for uid, one in sorted(claims.items())
        if one["checkpointState"] == "PrepareCompleted"
    }
    first = {"preparedClaims": completed} if completed else {}
    document: Object = {"checksum": checksum(compact({"checksum": 0, "v1": first})), "v1": first}
    if v2:
        second: Object = {"checksum": 0, "preparedClaims": dict(sorted(claims.items()))}
        if boot_id:
            second["nodeBootID"] = boot_id
        document["v2"] = {**second, "checksum": checksum(compact(second))}
    return compact(document).encode()


def write_spec(cdi: Path, uid: str, *names: str) -> Path:
    """That driver's CDI spec of a claim, with devices of these names, reduced to what tells it apart."""
    devices = [{"name": f"{uid}-{name}", "containerEdits": {"env": ["FROM=nvidia"]}} for name in names]
    spec = {"cdiVersion": "0.5.0", "kind": "k8s.gpu.nvidia.com/claim", "devices": devices}
    path = cdi / former_cdi_spec_file_name(uid)
    path.write_text(json.dumps(spec))  # JSON is YAML
    return path


def slice_of(node: str, devices: Sequence[Object]) -> Object:
    """That driver's slice of a node: its pool has the node's name."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"00000-gpu.nvidia.com-{node}-s7qj8"},
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": list(devices),
        },
    }
