"""Writes the manifests of ``deploy/`` that are the chart as helm renders it, or says which of them are stale.

``python -m tools.testbed.manifests`` writes them; ``make manifests`` does so after the chart's own files.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from envtest.client.shipped import PACKAGE_ROOT
from tools.testbed.chart import CHART, NAMESPACE, Values, rendered_text

DEPLOY = PACKAGE_ROOT / "deploy"
BASE = ("admission-policy", "controller", "device-classes", "kubeletplugin", "node-config", "rbac")
"""The templates of what always is there."""

_DEFAULTS: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
OPT_IN_ALONE: dict[str, Any] = {
    "optInClasses": dict.fromkeys(_DEFAULTS["optInClasses"], True),
    "deviceClasses": dict.fromkeys(_DEFAULTS["deviceClasses"], False),
}
COMPONENTS: dict[str, tuple[str, Values]] = {
    "extended-resources": ("device-classes", OPT_IN_ALONE),
    "mps": ("mps", {"mps": {"enabled": True}}),
    "page": ("page", {"page": {"enabled": True}}),
    "webhook-cert-manager": (
        "webhook",
        {"webhook": {"enabled": True, "certificates": {"source": "cert-manager"}}},
    ),
}
"""The template of each component of ``deploy/kustomize``, and the values with which it is rendered."""

UNINSTALL = ("uninstall-rights", "uninstall-job")
"""The templates of what helm runs before it deletes anything, to be applied by hand elsewhere."""

_BUNDLE = "R0lWRU4="
_GIVEN: dict[str, Any] = {
    "metrics": {"enabled": True},
    "webhook": {
        "enabled": True,
        "certificates": {"source": "secret", "secretName": "gpu-dra-webhook-tls", "caBundle": _BUNDLE},
    },
}
_MADE = "# Made from the chart by make manifests.\n"
_YOURS = "# caBundle: the PEM certificate of who signed the serving certificate, in base64"
_WEBHOOK = """\
# Two things are yours to give before this can run: the image, and a serving certificate for
# gpu-dra-webhook.gpu-dra.svc in the Secret gpu-dra-webhook-tls, with the certificate of who signed it as
# caBundle at the end of this file.
"""


def manifests() -> dict[Path, str]:
    """The files by their paths, with their texts."""
    namespace = yaml.safe_dump(NAMESPACE, sort_keys=False)
    base = {name: _text(name, {}) for name in BASE}
    kustomize = DEPLOY / "kustomize"
    files = {kustomize / "base" / f"{name}.yaml": _MADE + text for name, text in base.items()}
    files[kustomize / "base" / "namespace.yaml"] = _MADE + namespace
    for component, (template, values) in COMPONENTS.items():
        files[kustomize / "components" / component / f"{template}.yaml"] = _MADE + _text(template, values)
    for template in UNINSTALL:
        text = _text(template, {"uninstall": {"rendered": True}}, hooks=True)
        files[kustomize / "uninstall" / f"{template}.yaml"] = _MADE + text
    files[DEPLOY / "rbac.yaml"] = f"{_MADE}{namespace}---\n{base['rbac']}"
    files[DEPLOY / "admission-policy.yaml"] = _MADE + base["admission-policy"]
    webhook = _text("webhook", _GIVEN).replace(f"caBundle: {_BUNDLE}", _YOURS)
    files[DEPLOY / "webhook.yaml"] = _MADE + _WEBHOOK + webhook
    return files


def stale() -> list[Path]:
    """The files that are missing or differ."""
    return [file for file, text in manifests().items() if not file.is_file() or file.read_text() != text]


def _text(template: str, values: Values, *, hooks: bool = False) -> str:
    """What helm makes of one template, without the lines that name it."""
    text = rendered_text(values, only=f"{template}.yaml", hooks=hooks)
    documents = re.split(r"^---\n", text, flags=re.MULTILINE)
    kept = [re.sub(r"^# Source: .*\n", "", one, flags=re.MULTILINE).strip("\n") for one in documents]
    return "\n---\n".join(one for one in kept if one) + "\n"


def main() -> None:
    """Write what is stale."""
    texts = manifests()
    for file in stale():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(texts[file])


if __name__ == "__main__":
    main()
