"""Finds the kubeconfig and the namespace as kubectl does, and connects."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from driver.errors import ConfigError
from driver.kube.endpoint import SERVICE_ACCOUNT
from driver.kube.kubeconfig import Kubeconfig

if TYPE_CHECKING:
    from driver.kube.client import KubeClient

_DEFAULT_NAMESPACE = "default"


def connect_client(kubeconfig: Path | None, context: str | None = None) -> KubeClient:
    """A connection by the kubeconfig that is found; raises ConfigError for no way to a cluster."""
    from driver.kube.client import KubeClient

    return KubeClient.connect(find_kubeconfig(kubeconfig, context), user_agent="gpuctl")


def find_kubeconfig(given: Path | None, context: str | None) -> Kubeconfig | None:
    """The given file, those of $KUBECONFIG or ~/.kube/config; None without one, for a pod's account.

    Raises ConfigError for a context where there is no kubeconfig to have it.
    """
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
    """~/.kube/config; None where there is none, or the user has no home that can be read."""
    try:
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
        return found.namespace() or _DEFAULT_NAMESPACE
    try:
        return (SERVICE_ACCOUNT / "namespace").read_text().strip() or _DEFAULT_NAMESPACE
    except OSError:
        return _DEFAULT_NAMESPACE
