"""The Kubernetes objects of the demo: pods, and the claims that they name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from driver.devices.names import DRIVER_NAME

Object = dict[str, Any]

NAMESPACE = "default"
SMALL_CLASS = "mig-small"
"""The class of partitions of one slice, of any GPU (deviceclasses/mig.yaml)."""
SHARE_CLASS = "shared-mps"
"""The class of shares with limits by MPS (deviceclasses/tiers.yaml)."""
IMAGE = "localhost/busybox:1"
"""The image that the nodes of the real test cluster have; the embedded one starts no container."""


@dataclass(frozen=True, slots=True)
class DemoPod:
    """A pod of the story: all of its containers use one claim, for ``count`` devices of a class."""

    name: str
    count: int = 1
    containers: tuple[str, ...] = ("main",)
    device_class: str = DRIVER_NAME

    @property
    def claim_name(self) -> str:
        """The name of the pod's claim."""
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
        """The Pod."""
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": self.name},
            "spec": {
                # The kernel does not end the first process of a container by SIGTERM, unless it handles it.
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
    """The pods that fill a node of so many GPUs, at least one, and one more pod for which no GPU is left."""
    wanted = (DemoPod("notebook"), DemoPod("train", 2), DemoPod("duo", 1, ("server", "sidecar")))
    pods: list[DemoPod] = []
    left = gpu_count
    for pod in wanted:
        if pod.count <= left:
            pods.append(pod)
            left -= pod.count
    pods += [DemoPod(f"batch-{index}") for index in range(left)]
    return pods, DemoPod(f"batch-{left}")


def pods_of_class(device_class: str, name: str, count: int) -> list[DemoPod]:
    """Pods that each ask for a device of the class."""
    return [DemoPod(f"{name}-{index}", device_class=device_class) for index in range(count)]
