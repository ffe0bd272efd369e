"""Every manifest that the project ships can be applied to the embedded cluster; it says what it ignores."""

import http.client
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from envtest.client.api import APPLY
from tests.clusters import ApiClient, EmbeddedApiServer, Object, objects_in
from tests.envtest.embedded.api.api_calls import shown
from tests.refused_on_purpose import REFUSED, is_old

ROOT = Path(__file__).resolve().parents[3]
_BLOCK = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
_IN_ORDER = ("Namespace", "PriorityClass")
"""Kinds that others of the same file need, whatever file has them."""


def is_manifest(document: Any) -> bool:
    """Whether a document is an object of the API: node configurations, for example, are none."""
    of_others = (
        "cert-manager.io/v1",
        "kubevirt.io/v1",
        "kueue.x-k8s.io/v1beta2",
        "jobset.x-k8s.io/v1alpha2",
        "leaderworkerset.x-k8s.io/v1",
        "config.kueue.x-k8s.io/v1beta2",
    )  # which the embedded cluster does not serve
    whole = isinstance(document, dict) and {"apiVersion", "kind", "metadata"} <= set(document)
    return whole and document["apiVersion"] not in of_others


@cache
def manifests() -> dict[str, list[Object]]:
    """The objects of each file, and of the code blocks of each page."""
    found: dict[str, list[Object]] = {}
    for file in sorted(ROOT.glob("de*/**/*.yaml")):
        if file.is_relative_to(ROOT / "deploy" / "chart"):  # no manifests until helm has rendered them
            continue
        found[str(file.relative_to(ROOT))] = list(objects_in(file))
    for page in sorted((*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/**/*.md"))):
        blocks = [one for text in _BLOCK.findall(page.read_text()) for one in yaml.safe_load_all(text)]
        found[str(page.relative_to(ROOT))] = blocks
    return {
        name: kept
        for name, held in found.items()
        if not is_old(name) and (kept := [one for one in held if is_manifest(one)])
    }


IDLE = {
    *("Service", "Secret", "LimitRange", "NetworkPolicy", "DaemonSet", "StatefulSet"),
    *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration"),
}


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedApiServer]:
    """A server with the namespaces and priorities of all manifests; claims may have admin access."""
    allowed = {"resource.kubernetes.io/admin-access": "true"}
    held = [one for file in manifests().values() for one in file]
    names = {one["metadata"].get("namespace") or "default" for one in held}
    with EmbeddedApiServer() as running:
        client = ApiClient(running.url, None, running.gate.admin_bearer)
        for name in sorted(names):
            metadata = {"name": name, "labels": allowed}
            client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        for kind in _IN_ORDER:
            client.apply([one for held in manifests().values() for one in held if one["kind"] == kind])
        yield running


def test_the_manifests_are_found_where_they_are() -> None:
    kinds = {one["kind"] for held in manifests().values() for one in held}

    assert {"deploy/rbac.yaml", "deploy/webhook.yaml", "deviceclasses/tiers.yaml"} <= set(manifests())
    assert "docs/claims.md" in manifests()
    assert {"ClusterRole", "ValidatingAdmissionPolicy", "ValidatingWebhookConfiguration"} <= kinds
    assert {"DeviceClass", "Pod", "ResourceClaimTemplate", "Deployment"} <= kinds


def applied(server: EmbeddedApiServer, item: Object) -> tuple[int, str, str]:
    """The code, the message of a refusal and the warnings of an apply."""
    path = ApiClient(server.url, None, server.gate.admin_bearer).path_of(item)
    connection = http.client.HTTPConnection(server.address, timeout=10)
    try:
        target = f"{path}?fieldManager=t&force=true&fieldValidation=Strict"
        connection.request("PATCH", target, json.dumps(item), {"Content-Type": APPLY, **shown(server)})
        answer = connection.getresponse()
        message = json.loads(answer.read()).get("message", "")
        return answer.status, message, answer.getheader("Warning", "")
    finally:
        connection.close()


def test_shipped_manifests_are_taken_without_unknown_fields(server: EmbeddedApiServer) -> None:
    for source, item in ((source, item) for source, items in manifests().items() for item in items):
        expected = (403, 422) if source in REFUSED else (200, 201)
        code, message, warning = applied(server, item)

        assert code in expected, f"{source}: {item['kind']} {item['metadata'].get('name')}: {message}"
        path = ApiClient(server.url, None, server.gate.admin_bearer).path_of(item)
        if code == 201 and "/namespaces/" in path:  # the next file may have another one of that name
            server.delete(path)
        told = f"a {item['kind']} has no effect in the embedded cluster" in warning
        assert told == (item["kind"] in IDLE), f"{source}: {warning}"
