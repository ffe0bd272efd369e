"""Finds a cluster and a namespace as kubectl does, and reads objects of the cluster; never writes."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driver.errors import ConfigError
from driver.kube.errors import Forbidden, NotFound

# What talks to the cluster is imported inside of the functions: help and completion must not take that long.
if TYPE_CHECKING:
    from driver.kube.access import Kubeconfig
    from driver.kube.client import KubeClient

_DEFAULT_NAMESPACE = "default"

Object = dict[str, Any]

DRA = "/apis/resource.k8s.io/v1"
_PAGE = "500"
"""The most objects in one answer, as kubectl's --chunk-size is by default."""

_TIMEOUT_SECONDS = 30.0
_SILENT_SECONDS = 5.0
"""After so long a command says what it waits for."""


def connect_client(kubeconfig: Path | None, context: str | None = None) -> KubeClient:
    """A connection to the cluster that ``find_kubeconfig`` finds; raises ConfigError if it finds none."""
    from driver.kube.client import KubeClient

    return KubeClient.connect(find_kubeconfig(kubeconfig, context), user_agent="gpuctl")


def find_kubeconfig(given: Path | None, context: str | None) -> Kubeconfig | None:
    """The kubeconfig that kubectl would take; None if there is none, so that a pod's account is used.

    Raises ConfigError for a context without a kubeconfig.
    """
    from driver.kube.access import Kubeconfig

    # The order of kubectl: the flag, all files of $KUBECONFIG merged, ~/.kube/config.
    if given is not None:
        return Kubeconfig((given,), context)
    named = tuple(Path(name) for name in os.environ.get("KUBECONFIG", "").split(os.pathsep) if name)
    if named:
        return Kubeconfig(named, context)
    if default := _in_home():
        return Kubeconfig((default,), context)
    if context is not None:
        raise ConfigError(
            f"there is no kubeconfig that could have the context {context!r}", "name one with --kubeconfig"
        )
    return None


def _in_home() -> Path | None:
    """~/.kube/config; None if there is none, or the user has no home that can be read."""
    try:
        # RuntimeError: neither $HOME nor the user database names a home, as in many containers.
        found = Path.home() / ".kube" / "config"
        return found if found.exists() else None
    except (OSError, RuntimeError):
        return None


def find_namespace(given: str | None, kubeconfig: Path | None, context: str | None) -> str:
    """The given namespace, that of the context, or of the pod that this runs in; else ``default``.

    Raises ConfigError for a kubeconfig that cannot be read.
    """
    if given is not None:
        return given
    found = find_kubeconfig(kubeconfig, context)
    if found is not None:
        from driver.kube.kubeconfig import chosen_context

        return chosen_context(found)[1] or _DEFAULT_NAMESPACE
    from driver.kube.access import SERVICE_ACCOUNT

    try:
        return (SERVICE_ACCOUNT / "namespace").read_text().strip() or _DEFAULT_NAMESPACE
    except OSError:
        return _DEFAULT_NAMESPACE


class ClusterView:
    """The objects of a cluster as they are now. Raises ApiError, and ConfigError if no cluster is found."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    @classmethod
    def connect(cls, kubeconfig: Path | None, context: str | None = None) -> ClusterView:
        """A view of the cluster of the named context, or of the kubeconfig's current one."""
        return cls(connect_client(kubeconfig, context))

    def listed(self, path: str, **params: str) -> list[Object]:
        """All objects of a collection, read in pages; each has its kind and apiVersion."""
        items: list[Object] = []
        params = {**params, "limit": _PAGE}
        while True:
            with _saying_what_it_waits_for():
                answer = self._client.get(path, params, timeout_seconds=_TIMEOUT_SECONDS)
            # The API server leaves kind and apiVersion out of the items; only the list has them.
            kind = str(answer.get("kind", "")).removesuffix("List")
            head = {"apiVersion": answer.get("apiVersion", ""), "kind": kind}
            # An empty list may come as null, which is what Go makes of a slice without elements.
            items += [{**head, **item} for item in answer.get("items") or ()]
            following = answer.get("metadata", {}).get("continue")
            if not following:
                return items
            params["continue"] = following

    def listed_if_readable(self, path: str, **params: str) -> list[Object] | None:
        """A list; None if this user may not read it, or the server does not have it."""
        try:
            return self.listed(path, **params)
        except (Forbidden, NotFound):
            return None

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


@contextmanager
def _saying_what_it_waits_for() -> Iterator[None]:
    """Tell a person on stderr if the API server is silent for long."""
    from gpuctl.cli.output import say

    words = f"the API server has not answered for {_SILENT_SECONDS:g} s; waiting up to {_TIMEOUT_SECONDS:g} s"
    timer = threading.Timer(_SILENT_SECONDS, say, (words,), {"err": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def event_time(event: Mapping[str, Any]) -> str:
    """When an event happened last, as RFC 3339 in UTC; empty if it does not say."""
    # Reporters of the newer events API fill the series or eventTime, older ones the first and last timestamp.
    series = event.get("series") or {}
    return str(
        series.get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or event.get("firstTimestamp")
        or ""
    )
