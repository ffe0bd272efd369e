"""``--for FILE`` takes the pod of a manifest as the cluster would make it, with claims and priority."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuctl.explain.pod.manifest import pod_of_file
from tests.clusters import ClusterView, EmbeddedApiServer, Object, Snapshot, connect_client
from tests.gpus import ConfigError

SPEC = "{devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}"
TEMPLATE = f"""
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {{name: gpu}}
spec: {{spec: {SPEC}}}
"""
POD = """
spec:
  priorityClassName: urgent
  resourceClaims: [{name: gpu, resourceClaimTemplateName: gpu}]
  containers: [{name: main, image: x}]
"""


class Manifests:
    """A cluster with a PriorityClass, and a file to be read."""

    def __init__(self, server: EmbeddedApiServer, folder: Path) -> None:
        self.server = server
        view = ClusterView(connect_client(server.write_kubeconfig(folder / "config")))
        self.before = Snapshot((), (), (), (), view)
        self.file = folder / "manifest.yaml"

    def read(self, text: str) -> tuple[Object, Snapshot]:
        self.file.write_text(text)
        return pod_of_file(self.file, "team", self.before)


@pytest.fixture
def manifests(tmp_path: Path) -> Iterator[Manifests]:
    with EmbeddedApiServer() as server:
        body = {"metadata": {"name": "urgent"}, "value": 1000}
        server.create("/apis/scheduling.k8s.io/v1/priorityclasses", body)
        yield Manifests(server, tmp_path)


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "Job", "CronJob", "Pod"])
def test_the_pod_of_each_kind_is_found(manifests: Manifests, kind: str) -> None:
    if kind == "Pod":
        body = f"kind: Pod\nmetadata: {{name: serve}}{POD}"
    elif kind == "CronJob":
        nested = "\n      ".join(("spec:", "  template:", *("    " + one for one in POD.splitlines())))
        body = f"kind: CronJob\nmetadata: {{name: serve}}\nspec:\n  jobTemplate:\n      {nested}"
    else:
        nested = POD.replace("\n", "\n    ")
        body = f"kind: {kind}\nmetadata: {{name: serve}}\nspec:\n  template:{nested}"

    pod, seen = manifests.read(f"{body}\n---\n{TEMPLATE}")

    assert (pod["metadata"]["namespace"], pod["metadata"]["name"]) == ("team", "serve")
    assert pod["spec"]["priority"] == 1000
    assert seen.template("team", "gpu") is not None


def test_a_namespace_of_the_file_counts_and_templates_may_be_in_the_cluster(manifests: Manifests) -> None:
    manifests.server.create("/api/v1/namespaces", {"metadata": {"name": "other"}})
    path = "/apis/resource.k8s.io/v1/namespaces/other/resourceclaimtemplates"
    exactly = {"deviceClassName": "gpu.nvidia.com"}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    manifests.server.create(path, {"metadata": {"name": "gpu"}, "spec": {"spec": spec}})

    pod, seen = manifests.read(f"kind: Pod\nmetadata: {{name: serve, namespace: other}}{POD}")

    assert (pod["metadata"]["namespace"], seen.template("other", "gpu") is not None) == ("other", True)


def test_claims_of_the_file_count_as_made(manifests: Manifests) -> None:
    claim = TEMPLATE.replace("ClaimTemplate", "Claim").replace(f"{{spec: {SPEC}}}", SPEC)

    _, seen = manifests.read(f"kind: Pod\nmetadata: {{name: serve}}{POD}\n---{claim}")

    [made] = seen.claims
    assert made["metadata"] == {"name": "gpu", "namespace": "team", "uid": "team/gpu"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: [", "is not YAML"),
        ("- 1", "without kind or metadata.name"),
        ("", "contains no pod"),
        ("kind: Service\nmetadata: {name: web}", "contains no pod"),
        ("kind: Job\nmetadata: {name: web}\nspec: {template: 3}", "has no pod with containers"),
        (f"kind: Pod\nmetadata: {{name: a}}{POD.replace('urgent', 'absent')}", "PriorityClass absent"),
        ("kind: ResourceClaim\nmetadata: {name: a}", "ResourceClaim a of .* has no requests"),
        ("kind: Pod\nmetadata: {name: a}\nspec: {containers: [3]}", "is not as the API server wants it"),
        ("kind: Pod\nmetadata: {name: a}\nspec: {containers: [], priority: high}", "as the API server"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(manifests: Manifests, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        manifests.read(text)
