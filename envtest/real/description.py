"""The fixed properties of a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from envtest.client.layout import ClusterLayout, NodeLayout
from envtest.real.assets import Assets
from envtest.real.render import User
from envtest.real.slots import Slot


@dataclass(frozen=True, slots=True)
class Description:
    """The fixed properties of a cluster.

    ``users`` are by the names of their kubeconfigs; ``audit`` says whether the API server writes an
    audit log. ``gates`` are the feature gates of the control plane that are turned on.
    """

    layout: ClusterLayout
    slot: Slot
    assets: Assets
    users: dict[str, User]
    node_count: int
    audit: bool
    gates: tuple[str, ...] = ()

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return f"https://127.0.0.1:{self.slot.port('kube-apiserver')}"

    @property
    def nodes(self) -> tuple[NodeLayout, ...]:
        """The folders of the nodes."""
        return tuple(self.layout.node(index) for index in range(self.node_count))
