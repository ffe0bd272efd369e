"""The Kubernetes objects of the demo: pods, and the claims that they name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from driver.devices.names import DRIVER_NAME

Object = dict[str, Any]

NAMESPACE = "default"
SMALL_CLASS = "mig-small"
"""The class of partitions of one slice, of whichever GPU (deviceclasses/mig.yaml)."""
SHARE_CLASS = "shared-mps"
"""The class of shares that MPS holds to limits (deviceclasses/tiers.yaml)."""
IMAGE = "localhost/busybox:1"
"""The image that the real test cluster has in its nodes; the embedded one starts no container."""


@dataclass(frozen=True, slots=True)
class DemoPod:
    """A pod of the story: all of its containers use one claim, for so many devices of a class."""

    name: str
    count: int = 1
    containers: tuple[str, ...] = ("main",)
    device_class: str = DRIVER_NAME

    @property
    def claim_name(self) -> str:
        """The claim that the pod names."""
        return f"{self.name}-gpus"

    def claim(self) -> Object:
        """The ResourceClaim."""
        exactly = {"deviceClassName": self.device_class, "count": self.count}
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": self.claim_name},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
        }

    def pod(self) -> Object:
        """The Pod, which ends at once when it is deleted."""
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": self.name},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "resourceClaims": [{"name": "gpus", "resourceClaimName": self.claim_name}],
                "containers": [
                    {
                        "name": container,
                        "image": IMAGE,
                        "imagePullPolicy": "Never",
                        "resources": {"claims": [{"name": "gpus"}]},
                    }
                    for container in self.containers
                ],
            },
        }


def story_pods(gpu_count: int) -> tuple[list[DemoPod], DemoPod]:
    """The pods that fill a node of so many GPUs, at least one, and one more for which nothing is left."""
    wanted = (DemoPod("notebook"), DemoPod("train", 2), DemoPod("duo", 1, ("server", "sidecar")))
    pods: list[DemoPod] = []
    left = gpu_count
    for pod in wanted:
        if pod.count <= left:
            pods.append(pod)
            left -= pod.count
    pods += [DemoPod(f"batch-{index}") for index in range(left)]
    return pods, DemoPod(f"batch-{left}")


def small_pods(count: int) -> list[DemoPod]:
    """So many pods that ask for a small partition each."""
    return [DemoPod(f"small-{index}", device_class=SMALL_CLASS) for index in range(count)]


def share_pods(count: int) -> list[DemoPod]:
    """So many pods that ask for a share of a GPU each."""
    return [DemoPod(f"share-{index}", device_class=SHARE_CLASS) for index in range(count)]
