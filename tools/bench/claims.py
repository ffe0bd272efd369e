"""Makes claims that are allocated already, as the scheduler would leave them."""

from __future__ import annotations

import uuid
from typing import Any

from driver.devices.names import DRIVER_NAME, pool_name
from envtest.client import paths
from envtest.cluster import Cluster
from proto import dra_v1_pb2 as pb


def make_claim(
    cluster: Cluster,
    name: str,
    node: str,
    device: str,
    *,
    admin: bool = False,
    consumed: dict[str, str] | None = None,
) -> pb.Claim:
    """A claim in the namespace ``bench`` that was given one device of the node's pool, or a share of it.

    ``consumed`` is what it takes of the capacities of a shared device.
    """
    request: dict[str, Any] = {"deviceClassName": DRIVER_NAME, **({"adminAccess": True} if admin else {})}
    created = cluster.api.create(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": request}]}},
        },
        "bench",
    )
    result: dict[str, Any] = {
        "request": "gpu",
        "driver": DRIVER_NAME,
        "pool": pool_name(node),
        "device": device,
        **({"adminAccess": True} if admin else {}),
        **({"shareID": str(uuid.uuid4()), "consumedCapacity": consumed} if consumed else {}),
    }
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    created["status"] = {
        "allocation": {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
        }
    }
    stored = cluster.api.replace(f"{paths.resource_claim(name, 'bench')}/status", created)
    return pb.Claim(namespace="bench", name=name, uid=stored["metadata"]["uid"])


def make_namespace(cluster: Cluster) -> None:
    """The namespace of all claims, in which admin access is allowed."""
    labels = {"resource.kubernetes.io/admin-access": "true"}
    cluster.api.create(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bench", "labels": labels}}
    )
