"""Claims of every kind on one node of eight GPUs, all of which can be prepared at once."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from driver.kube.paths import RESOURCE_SLICES
from proto import dra_v1_pb2 as v1
from tests.clusters import Object
from tests.gpus import DRIVER_NAME, Placement, pool_name
from tests.processes.node import GROUP, NODE, Node

STATIC_GPU, MADE_GPU, FRACTIONAL_GPU = 3, 4, 7
"""The GPU that an admin has cut in halves, the one that the driver cuts, the one that is shared by memory."""

_HALF_GPU_INSTANCE, _HALF_COMPUTE_INSTANCE = 9, 2
_UIDS = uuid.UUID("6a1c9f0e-2f0b-4b53-9d6a-3f8f1f5b8a10")


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """A kind of claim, by the one device that it was given.

    ``gpu`` is the GPU's index, and ``suffix`` what the device's name has after the name of the GPU.
    ``consumed`` is what the claim took of a shared device, and ``sharing`` what the configuration of its
    class asks for.
    """

    name: str
    gpu: int
    suffix: str = ""
    admin: bool = False
    consumed: Mapping[str, str] = field(default_factory=dict)
    sharing: Mapping[str, Any] = field(default_factory=dict)

    @property
    def uid(self) -> str:
        """The UID of the claim of this kind, the same on every node."""
        return str(uuid.uuid5(_UIDS, self.name))

    def result(self, node: Node) -> Object:
        """The allocation's result."""
        given: Object = {
            "request": "gpu",
            "driver": DRIVER_NAME,
            "pool": pool_name(NODE),
            "device": node.gpus[self.gpu] + self.suffix,
        }
        if self.admin:
            given["adminAccess"] = True
        if self.consumed:
            share_id = str(uuid.uuid5(_UIDS, f"share of {self.name}"))
            given |= {"shareID": share_id, "consumedCapacity": dict(self.consumed)}
        return given

    def config(self) -> list[Object]:
        """The allocation's configuration."""
        if not self.sharing:
            return []
        whole = not any(word in self.suffix for word in ("-mig-", "-static-"))
        kind = "GpuConfig" if whole else "MigDeviceConfig"
        parameters = {
            "apiVersion": "resource.nvidia.com/v1beta1",
            "kind": kind,
            "sharing": dict(self.sharing),
        }
        opaque = {"driver": DRIVER_NAME, "parameters": parameters}
        return [{"source": "FromClass", "requests": [], "opaque": opaque}]


_ONE_SHARE = {"shares": "1"}
_MPS = {"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": 40}}


def _slicing(interval: str) -> Mapping[str, Any]:
    return {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": interval}}


KINDS = (
    Kind("whole", 0),
    Kind("admin", 0, admin=True),
    Kind("own-mps", 1, sharing=_MPS),
    Kind("own-time-slicing", 2, sharing=_slicing("Long")),
    Kind("static", STATIC_GPU, "-static-3g-40gb-4"),
    Kind("static-mps-share", STATIC_GPU, "-static-3g-40gb-0-mps-2", consumed=_ONE_SHARE),
    Kind("partition", MADE_GPU, "-mig-1g-10gb-6"),
    Kind("layout-partition", MADE_GPU, "-mig-1g-20gb-4"),
    Kind("partition-own-mps", MADE_GPU, "-mig-2g-20gb-0", sharing=_MPS),
    Kind("partition-mps-share", MADE_GPU, "-mig-2g-20gb-2-mps-2", consumed=_ONE_SHARE),
    Kind("time-sliced-share", 5, "-ts-4", consumed=_ONE_SHARE, sharing=_slicing("Short")),
    Kind("mps-share", 6, "-mps-4", consumed=_ONE_SHARE),
    Kind("fractional", FRACTIONAL_GPU, "-mps-frac-mem", consumed={"memory": "20Gi"}),
)
"""Those that can be prepared together: no two stand in each other's way."""


def cut_in_halves(node: Node) -> None:
    """Do what an admin does who cuts a GPU by hand."""
    nvml = node.machine.nvml()
    nvml.init()
    device = nvml.device_by_pci(node.machine.pci(STATIC_GPU))
    device.set_mig_mode(enabled=True)
    for start in (4, 0):
        made = device.create_gpu_instance(_HALF_GPU_INSTANCE, Placement(start, 4))
        device.create_compute_instance(made.id, _HALF_COMPUTE_INSTANCE)
    nvml.shutdown()


def publish_memory(node: Node) -> None:
    """Publish the fractional GPU, whose memory the plugin knows from its slice alone."""
    device = f"{node.gpus[FRACTIONAL_GPU]}-mps-frac-mem"
    capacity = {"memory": {"value": "79Gi"}}
    pool = {"name": pool_name(NODE), "generation": 1, "resourceSliceCount": 1}
    spec = {
        "driver": DRIVER_NAME,
        "nodeName": NODE,
        "pool": pool,
        "devices": [{"name": device, "allowMultipleAllocations": True, "capacity": capacity}],
    }
    node.server.create(RESOURCE_SLICES, {"metadata": {"name": "by-hand"}, "spec": spec})


def put_claim(node: Node, kind: Kind, uid: str = "", name: str = "") -> v1.Claim:
    """Put an allocated claim of a kind into the API, with a UID and a name of its own where they are given.

    It goes past the API server's validation, which is nothing that two versions could disagree about.
    """
    uid, name = uid or kind.uid, name or kind.name
    stored: Object = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "ResourceClaim",
        "metadata": {"namespace": "team", "name": name, "uid": uid},
        "spec": {"devices": {}},
        "status": {"allocation": {"devices": {"results": [kind.result(node)], "config": kind.config()}}},
    }
    node.server.store.put((GROUP, "resourceclaims"), ("team", name), stored)
    return v1.Claim(namespace="team", name=name, uid=uid)
