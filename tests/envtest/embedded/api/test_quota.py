"""Quotas count claims, devices by class and extended resources, and refuse in Kubernetes' words."""

from collections.abc import Iterator

import pytest

from envtest.embedded.api.statuses import Refused
from tests.clusters import EmbeddedApiServer, Object
from tests.envtest.embedded.api.api_calls import CLAIMS, CLASSES, PODS, QUOTAS, claim, pod

EXTENDED = "requests.example.com/gpu"


@pytest.fixture
def server() -> Iterator[EmbeddedApiServer]:
    with EmbeddedApiServer() as running:
        spec = {"extendedResourceName": "example.com/gpu"}
        running.create(CLASSES, {"metadata": {"name": "gpu.example.com"}, "spec": spec})
        yield running


def limit(server: EmbeddedApiServer, **hard: str) -> None:
    server.create(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": hard}})


def used(server: EmbeddedApiServer) -> dict[str, str]:
    [quota] = server.objects("resourcequotas")
    found: dict[str, str] = quota["status"]["used"]
    return found


def refusal(server: EmbeddedApiServer, path: str, item: Object) -> str:
    with pytest.raises(Refused) as caught:
        server.create(path, item)
    assert caught.value.code == 403
    return str(caught.value)


def test_a_pod_and_the_claim_that_is_made_for_it_are_charged_once(server: EmbeddedApiServer) -> None:
    limit(server, **{EXTENDED: "2"})
    asking = {"name": "c", "image": "i", "resources": {"limits": {"example.com/gpu": "2"}}}
    stored = server.create(PODS, pod("p", containers=[asking]))
    made = claim("made", count=2)
    uid = stored["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": True}
    made["metadata"]["annotations"] = {"resource.kubernetes.io/extended-resource-claim": "true"}
    made["metadata"]["ownerReferences"] = [owner]

    server.create(CLAIMS, made)

    assert used(server) == {EXTENDED: "2"}
    refusal(server, PODS, pod("q", containers=[asking]))


def test_admin_access_needs_the_label_of_the_namespace(server: EmbeddedApiServer) -> None:
    with pytest.raises(Refused) as caught:
        server.create(CLAIMS, claim("a", adminAccess=True))
    namespace = server.objects("namespaces")[0]
    labels = {"resource.kubernetes.io/admin-access": "true"}
    server.replace(
        "/api/v1/namespaces/default", {**namespace, "metadata": {**namespace["metadata"], "labels": labels}}
    )

    assert caught.value.code == 422
    assert "requires the `resource.kubernetes.io/admin-access: true` label" in str(caught.value)
    server.create(CLAIMS, claim("a", adminAccess=True))


def test_compute_resources_are_counted_and_have_to_be_said(server: EmbeddedApiServer) -> None:
    limit(server, **{"requests.cpu": "1", "limits.memory": "1Gi", "services": "1", "secrets": "0"})

    def asking(name: str, cpu: str) -> Object:
        found = pod(name)
        found["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}, "limits": {"memory": "1Mi"}}
        return found

    server.create(PODS, asking("a", "600m"))

    missing = "failed quota: q: must specify limits.memory for: c; requests.cpu for: c"
    assert missing in refusal(server, PODS, pod("b"))
    over = "exceeded quota: q, requested: requests.cpu=500m, used: requests.cpu=600m, limited: requests.cpu=1"
    assert over in refusal(server, PODS, asking("b", "500m"))
    assert "secrets=1" in refusal(server, "/api/v1/namespaces/default/secrets", {"metadata": {"name": "s"}})
    assert used(server) == {"requests.cpu": "600m", "limits.memory": "1Mi", "services": "0", "secrets": "0"}
