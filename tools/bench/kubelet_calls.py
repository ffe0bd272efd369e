"""Calls a plugin as the kubelet does, and measures how long it takes; makes the claims for these calls."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import grpc

from driver.devices.names import DRIVER_NAME, pool_name
from envtest.client import paths
from envtest.cluster import Cluster
from proto import dra_v1_pb2 as pb
from tools.bench.floor import SERVICE


class PluginFailed(Exception):
    """The plugin answered a claim with an error."""


class Plugin:
    """One connection to a plugin's socket; times are in milliseconds."""

    def __init__(self, socket: Path) -> None:
        """Connect; waits until the socket answers."""
        self._channel = grpc.insecure_channel(f"unix:{socket}")
        grpc.channel_ready_future(self._channel).result(timeout=30)
        self._prepare = self._channel.unary_unary(
            f"/{SERVICE}/NodePrepareResources",
            request_serializer=pb.NodePrepareResourcesRequest.SerializeToString,
            response_deserializer=pb.NodePrepareResourcesResponse.FromString,
        )
        self._unprepare = self._channel.unary_unary(
            f"/{SERVICE}/NodeUnprepareResources",
            request_serializer=pb.NodeUnprepareResourcesRequest.SerializeToString,
            response_deserializer=pb.NodeUnprepareResourcesResponse.FromString,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect."""
        self._channel.close()

    def prepare(self, claim: pb.Claim) -> float:
        """Prepare one claim in a call of its own."""
        return self._timed(lambda: self._prepare(pb.NodePrepareResourcesRequest(claims=[claim]), timeout=45))

    def unprepare(self, claim: pb.Claim) -> float:
        """Unprepare one claim in a call of its own."""
        return self._timed(
            lambda: self._unprepare(pb.NodeUnprepareResourcesRequest(claims=[claim]), timeout=45)
        )

    def at_once(self, work: Callable[[pb.Claim], float], claims: Sequence[pb.Claim]) -> float:
        """Do the work for all claims at once, a call for each; returns the time until all are done."""
        with ThreadPoolExecutor(len(claims)) as pool:
            started = time.perf_counter()
            for future in [pool.submit(work, claim) for claim in claims]:
                future.result()
            return (time.perf_counter() - started) * 1000

    def _timed(self, call: Callable[[], Any]) -> float:
        started = time.perf_counter()
        answer = call()
        milliseconds = (time.perf_counter() - started) * 1000
        for uid, entry in answer.claims.items():
            if entry.error:
                raise PluginFailed(f"claim {uid}: {entry.error}")
        return milliseconds


def make_claim(
    cluster: Cluster,
    name: str,
    node: str,
    device: str,
    *,
    admin: bool = False,
    consumed: dict[str, str] | None = None,
) -> pb.Claim:
    """Make a claim in the namespace ``bench``, with one device of the node's pool or a share of it allocated.

    ``consumed`` is what it uses of the capacities of a shared device.
    """
    # The allocation is written here, so that no scheduler has a part in what is measured.
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
    """Make the namespace of all claims, with the label that allows admin access in it."""
    labels = {"resource.kubernetes.io/admin-access": "true"}
    cluster.api.create(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bench", "labels": labels}}
    )
