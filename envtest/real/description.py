"""The fixed properties of a cluster, kept in its folder so that another process can attach to it."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path

from envtest.client.errors import ClusterError
from envtest.client.layout import ClusterLayout, NodeLayout, state_folder
from envtest.real.assets import Assets
from envtest.real.render import User, tokens_csv
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


def save(description: Description) -> None:
    """Write a description into the cluster's folder; the tokens only root can read."""
    layout = description.layout
    # With this mode from the beginning: the tokens are never readable for others.
    layout.tokens.touch(mode=0o600)
    layout.tokens.write_text(tokens_csv(description.users))
    properties = {
        "audit": description.audit,
        "binaries": str(description.assets.folder),
        "gates": description.gates,
        "kubernetes": description.assets.kubernetes,
        "nodes": description.node_count,
        "slot": description.slot.index,
    }
    layout.description.write_text(json.dumps(properties))


def load(folder: Path) -> Description:
    """Read the description of the cluster in a folder.

    Raises:
        ClusterError: there is none.
    """
    layout = state_folder(folder)
    if not layout.description.exists():
        raise ClusterError(f"there is no cluster in {layout.folder}")
    properties = json.loads(layout.description.read_text())
    with layout.tokens.open(newline="") as file:
        rows = list(csv.reader(file))
    users = {key: User(name, token, *group) for token, name, key, *group in rows}
    assets = Assets(Path(properties["binaries"]), properties["kubernetes"])
    slot = Slot(properties["slot"])
    audit, gates = properties["audit"], tuple(properties["gates"])
    return Description(layout, slot, assets, users, properties["nodes"], audit, gates)
