"""Renders and installs the project's helm chart, with real helm."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from envtest.client.errors import ClusterError
from envtest.client.shipped import PACKAGE_ROOT
from envtest.cluster import DRIVER_NAMESPACE
from envtest.real.cluster import RealCluster
from envtest.real.go_programs import go_programs

Object = dict[str, Any]
Values = Mapping[str, Any]

CHART = PACKAGE_ROOT / "deploy" / "chart"
RELEASE = "gpu-dra"
HELMS = ("helm3", "helm4")
HELM_SECONDS = 300.0

NAMESPACE: Object = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {
        "name": DRIVER_NAMESPACE,
        "labels": {"pod-security.kubernetes.io/enforce": "privileged"},
    },
}


class HelmRefused(ClusterError):
    """helm ended with an error; the message is what it said."""


def helm(*arguments: str, program: str = "helm3", values: Values | None = None) -> str:
    """Run helm, of ``helm3`` or ``helm4``, and return what it prints; ``values`` become a file of ``-f``.

    Raises:
        HelmRefused: it ended with an error.
        ClusterError: it did not end in time.
    """
    with tempfile.TemporaryDirectory(prefix="helm-") as folder:
        given = Path(folder) / "values.yaml"
        given.write_text(yaml.safe_dump(dict(values or {})))
        file = ("-f", str(given)) if values is not None else ()
        homes = {f"HELM_{name}_HOME": f"{folder}/{name.lower()}" for name in ("CACHE", "CONFIG", "DATA")}
        try:
            done = subprocess.run(
                [go_programs(program) / "helm", *arguments, *file],
                env={**os.environ, **homes},
                capture_output=True,
                text=True,
                check=False,
                timeout=HELM_SECONDS,
            )
        except subprocess.TimeoutExpired as error:
            raise ClusterError(f"helm {arguments[0]} did not end within {HELM_SECONDS:.0f} s") from error
    if done.returncode:
        raise HelmRefused(f"helm {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout


def rendered(
    values: Values | None = None,
    *,
    namespace: str = DRIVER_NAMESPACE,
    kubernetes: str = "1.37.0",
    program: str = "helm3",
    only: str = "",
) -> list[Object]:
    """The objects of the chart with these values, without hooks, in the order in which helm installs them.

    ``kubernetes`` is the version of the cluster for which it is rendered; ``only`` names one template.
    Raises HelmRefused with helm's words, those of a refused value perhaps.
    """
    text = rendered_text(values, namespace=namespace, kubernetes=kubernetes, program=program, only=only)
    return [one for one in yaml.safe_load_all(text) if one]


def rendered_text(
    values: Values | None = None,
    *,
    namespace: str = DRIVER_NAMESPACE,
    kubernetes: str = "1.37.0",
    program: str = "helm3",
    only: str = "",
    hooks: bool = False,
) -> str:
    """The same as YAML with its comments; with ``hooks`` what helm runs at its time is there as well."""
    about = ["--namespace", namespace, "--kube-version", kubernetes, *([] if hooks else ["--no-hooks"])]
    shown = ("--show-only", f"templates/{only}") if only else ()
    return helm("template", RELEASE, str(CHART), *about, *shown, program=program, values=values or {})


def apply_chart(cluster: RealCluster, values: Values | None = None) -> list[Object]:
    """Apply the rendered chart and its namespace, as GitOps tools do; returns the objects as stored."""
    cluster.api.apply(NAMESPACE)
    objects = rendered(values, kubernetes=f"{cluster.kubernetes}.0")
    return cluster.api.apply(objects, DRIVER_NAMESPACE)


def helm_in(
    cluster: RealCluster, *arguments: str, program: str = "helm3", values: Values | None = None
) -> str:
    """Run helm as the cluster's administrator, in the driver's namespace."""
    about = ("--kubeconfig", str(cluster.admin), "--namespace", DRIVER_NAMESPACE)
    return helm(*arguments, *about, program=program, values=values)


def install_chart(cluster: RealCluster, values: Values | None = None, *, program: str = "helm3") -> str:
    """Install or upgrade the release with helm; returns what it says. It does not wait for the pods."""
    cluster.api.apply(NAMESPACE)
    return helm_in(cluster, "upgrade", "--install", RELEASE, str(CHART), program=program, values=values or {})
