"""Renders and installs the project's helm chart with real helm, and writes the manifests made from it.

``python -m tools.testbed.chart`` writes the manifests of ``deploy/``, which are parts of the chart as helm
renders it; ``make manifests`` runs it after it has written the chart's own files.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from envtest.client.errors import ClusterError
from envtest.client.shipped import PACKAGE_ROOT
from envtest.real.api_server import RealApiServer
from envtest.real.build import go_programs
from gpuctl.demo.driver_node import DRIVER_NAMESPACE

Object = dict[str, Any]
Values = Mapping[str, Any]

CHART = PACKAGE_ROOT / "deploy" / "chart"
RELEASE = "gpu-dra"
HELMS = ("helm3", "helm4")
_HELM_SECONDS = 300.0

DEPLOY = PACKAGE_ROOT / "deploy"
NAMESPACE: Object = yaml.safe_load((DEPLOY / "namespace.yaml").read_text())

_WITH_RIGHTS: dict[str, Values] = {
    "rbac": {},
    "page": {"page": {"enabled": True}},
    "preemptor": {"preemptor": {"enabled": True}},
    "cliques": {"cliques": {"enabled": True}},
    "uninstall-rights": {"uninstall": {"rendered": True}},
}
"""The templates that grant rights, and the values with which they do."""
_GRANTS = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")

# A certificate to render, which is replaced by a comment afterwards.
_BUNDLE = "R0lWRU4="
_WEBHOOK_VALUES: dict[str, Any] = {
    "metrics": {"enabled": True},
    "webhook": {
        "enabled": True,
        "certificates": {"source": "secret", "secretName": "gpu-dra-webhook-tls", "caBundle": _BUNDLE},
    },
}
_MADE = "# Made from the chart by make manifests.\n"
_RIGHTS_HEAD = """\
# The rights of each account of the driver. The page, the preemptor, the cliques and the uninstallation are
# optional.
"""
_BUNDLE_COMMENT = "# caBundle: the PEM certificate of who signed the serving certificate, in base64"
_WEBHOOK_HEAD = """\
# Two things are yours to give before this can run: the image, and a serving certificate for
# gpu-dra-webhook.gpu-dra.svc in the Secret gpu-dra-webhook-tls, with the certificate of who signed it as
# caBundle at the end of this file.
"""


class HelmRefused(ClusterError):
    """helm failed; the message is what it wrote."""


def helm(*arguments: str, program: str = "helm3", values: Values | None = None) -> str:
    """Run ``helm3`` or ``helm4`` and return what it prints; ``values`` become a file for ``-f``.

    Raises:
        HelmRefused: it failed.
        ClusterError: it did not end in time.
    """
    with tempfile.TemporaryDirectory(prefix="helm-") as folder:
        given = Path(folder) / "values.yaml"
        given.write_text(yaml.safe_dump(dict(values or {})))
        file = ("-f", str(given)) if values is not None else ()
        # Folders of its own: plugins and settings of the user must not change what is rendered.
        homes = {f"HELM_{name}_HOME": f"{folder}/{name.lower()}" for name in ("CACHE", "CONFIG", "DATA")}
        try:
            done = subprocess.run(
                [go_programs(program) / "helm", *arguments, *file],
                env={**os.environ, **homes},
                capture_output=True,
                text=True,
                check=False,
                timeout=_HELM_SECONDS,
            )
        except subprocess.TimeoutExpired as error:
            raise ClusterError(f"helm {arguments[0]} did not end within {_HELM_SECONDS:.0f} s") from error
    if done.returncode:
        raise HelmRefused(f"helm {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout


def rendered(
    values: Values | None = None,
    *,
    namespace: str = DRIVER_NAMESPACE,
    kubernetes: str = "1.37.0",
    program: str = "helm3",
) -> list[Object]:
    """The objects of the chart with these values, without hooks, in the order in which helm installs them.

    ``kubernetes`` is the version of the cluster for which it is rendered. Raises HelmRefused, also
    for values that the chart refuses.
    """
    text = rendered_text(values, namespace=namespace, kubernetes=kubernetes, program=program)
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
    """The same as YAML text with its comments; with ``hooks`` also the objects of hooks.

    ``only`` names one template.
    """
    about = ["--namespace", namespace, "--kube-version", kubernetes, *([] if hooks else ["--no-hooks"])]
    shown = ("--show-only", f"templates/{only}") if only else ()
    return helm("template", RELEASE, str(CHART), *about, *shown, program=program, values=values or {})


def helm_in(
    cluster: RealApiServer, *arguments: str, program: str = "helm3", values: Values | None = None
) -> str:
    """Run helm as the cluster's administrator, in the driver's namespace."""
    about = ("--kubeconfig", str(cluster.admin), "--namespace", DRIVER_NAMESPACE)
    return helm(*arguments, *about, program=program, values=values)


def install_chart(cluster: RealApiServer, values: Values | None = None, *, program: str = "helm3") -> str:
    """Install or upgrade the release with helm; returns what it prints. Does not wait for the pods."""
    cluster.api.apply(NAMESPACE)
    return helm_in(cluster, "upgrade", "--install", RELEASE, str(CHART), program=program, values=values or {})


def manifests() -> dict[Path, str]:
    """The files that are made from the chart: path -> text."""
    namespace = yaml.safe_dump(NAMESPACE, sort_keys=False)
    grants = [_manifest(template, values, kinds=_GRANTS) for template, values in _WITH_RIGHTS.items()]
    webhook = _manifest("webhook", _WEBHOOK_VALUES).replace(f"caBundle: {_BUNDLE}", _BUNDLE_COMMENT)
    return {
        DEPLOY / "rbac.yaml": _MADE + _RIGHTS_HEAD + "---\n".join([namespace, *grants]),
        DEPLOY / "admission-policy.yaml": _MADE + _manifest("admission-policy", {}),
        DEPLOY / "webhook.yaml": _MADE + _WEBHOOK_HEAD + webhook,
    }


def stale_manifests() -> dict[Path, str]:
    """The files that are missing or differ, with the texts that they should have."""
    return {
        file: text for file, text in manifests().items() if not file.is_file() or file.read_text() != text
    }


def _manifest(template: str, values: Values, *, kinds: Sequence[str] = ()) -> str:
    """The objects of these kinds in a template as helm renders it; without kinds all of them."""
    text = rendered_text(values, only=f"{template}.yaml", hooks=True)
    documents = [
        re.sub(r"^# Source: .*\n", "", document, flags=re.MULTILINE).strip("\n")
        for document in re.split(r"^---\n", text, flags=re.MULTILINE)
    ]
    wanted = [
        document
        for document in documents
        if document and (not kinds or yaml.safe_load(document)["kind"] in kinds)
    ]
    return "\n---\n".join(wanted) + "\n"


def main() -> None:
    """Write the files that are stale."""
    for file, text in stale_manifests().items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


if __name__ == "__main__":
    main()
