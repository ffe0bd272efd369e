"""Reads what the commands look at from any cluster, found as kubectl finds it; never writes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from driver.errors import ConfigError
from driver.kube.client import KubeClient
from driver.kube.errors import NotFound

Object = dict[str, Any]
Command = TypeVar("Command", bound=Callable[..., Any])

DRA = "/apis/resource.k8s.io/v1"
_PAGE = "500"


def kubeconfig_option(command: Command) -> Command:
    """Add ``--kubeconfig``, found as kubectl finds it: the flag, $KUBECONFIG, ~/.kube/config, the pod."""
    return click.option(
        "--kubeconfig",
        type=click.Path(path_type=Path),
        help="The kubeconfig; else $KUBECONFIG, ~/.kube/config, or the service account of the pod.",
    )(command)


class ClusterView:
    """The objects of a cluster as they are now. Raises ApiError, and ConfigError for no way to a cluster."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    @classmethod
    def connect(cls, kubeconfig: Path | None) -> ClusterView:
        """A view through the kubeconfig that is found."""
        return cls(connect_client(kubeconfig))

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


def connect_client(kubeconfig: Path | None) -> KubeClient:
    """A connection through the kubeconfig that is found; raises ConfigError for no way to a cluster."""
    return KubeClient.connect(_found(kubeconfig), user_agent="gpuctl")


def _found(kubeconfig: Path | None) -> Path | None:
    if kubeconfig is not None:
        return kubeconfig
    named = os.environ.get("KUBECONFIG", "")
    if os.pathsep in named:
        raise ConfigError("$KUBECONFIG names several files", "name one with --kubeconfig")
    default = Path.home() / ".kube" / "config"
    return Path(named) if named else default if default.exists() else None
