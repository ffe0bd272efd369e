"""The name of a container of a pod, by which the kubelet and the container runtime both know it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ContainerName:
    """All three are empty where nobody told them."""

    namespace: str
    pod: str
    container: str

    def __bool__(self) -> bool:
        """Whether it names a container."""
        return bool(self.container)

    def __str__(self) -> str:
        return (
            f"{self.container} of pod {self.namespace}/{self.pod}" if self else "a container without a name"
        )
