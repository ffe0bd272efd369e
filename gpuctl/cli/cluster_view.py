"""Reads what the commands look at from any cluster, found as kubectl finds it; never writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from driver.kube.client import KubeClient
from driver.kube.errors import NotFound
from gpuctl.cli.context import connect_client

Object = dict[str, Any]

DRA = "/apis/resource.k8s.io/v1"
_PAGE = "500"


class ClusterView:
    """The objects of a cluster as they are now. Raises ApiError, and ConfigError for no way to a cluster."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    @classmethod
    def connect(cls, kubeconfig: Path | None, context: str | None = None) -> ClusterView:
        """A view through the kubeconfig that is found, of its current context or the one that is named."""
        return cls(connect_client(kubeconfig, context))

    def listed(self, path: str, **params: str) -> list[Object]:
        """All objects of a collection, read in pages; each has its kind and apiVersion."""
        items: list[Object] = []
        params = {**params, "limit": _PAGE}
        while True:
            answer = self._client.get(path, params, timeout_seconds=30.0)
            kind = str(answer.get("kind", "")).removesuffix("List")
            head = {"apiVersion": answer.get("apiVersion", ""), "kind": kind}
            items += [{**head, **item} for item in answer.get("items") or ()]
            following = answer.get("metadata", {}).get("continue")
            if not following:
                return items
            params["continue"] = following

    def found(self, path: str) -> Object | None:
        """One object, None when there is none."""
        try:
            return self._client.get(path)
        except NotFound:
            return None

    def slices(self) -> list[Object]:
        """All ResourceSlices."""
        return self.listed(f"{DRA}/resourceslices")

    def claims(self) -> list[Object]:
        """The ResourceClaims of all namespaces."""
        return self.listed(f"{DRA}/resourceclaims")

    def classes(self) -> list[Object]:
        """All DeviceClasses."""
        return self.listed(f"{DRA}/deviceclasses")

    def nodes(self) -> list[Object]:
        """All nodes."""
        return self.listed("/api/v1/nodes")
