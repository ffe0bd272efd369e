"""What is wrong with a pod is told in Kubernetes' words when it is made or changed, before it runs."""

from __future__ import annotations

from typing import Any

import pytest

from envtest.client import paths
from envtest.client.errors import ApiRefused
from envtest.cluster import Cluster

Object = dict[str, Any]

GPU = "nvidia.com/gpu"
UNCHANGEABLE = (
    "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to "
    "existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was "
    "previously negative)"
)
RESOURCES = "spec.containers[0].resources"


def pod(name: str = "p", container: Object | None = None, **spec: Any) -> Object:
    """A pod that no scheduler looks at."""
    one = {"name": "main", "image": "localhost/busybox:1", "imagePullPolicy": "Never", **(container or {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"schedulerName": "nobody", "containers": [one], **spec},
    }


def refusal(cluster: Cluster, namespace: str, item: Object) -> str:
    with pytest.raises(ApiRefused) as refused:
        cluster.api.create(item, namespace)
    assert (refused.value.status, refused.value.reason) == (422, "Invalid")
    assert cluster.api.find(paths.pod(item["metadata"]["name"], namespace)) is None
    return str(refused.value)


def test_all_that_is_wrong_is_told_at_once(cluster: Cluster, namespace: str) -> None:
    bad = {"name": "Bad_Name", "image": "", "resources": {"limits": {GPU: "0.5"}}}

    told = refusal(cluster, namespace, pod(container=bad, tolerations=[{"key": "a", "operator": "Is"}]))

    assert "spec.containers[0].name: Invalid value" in told
    assert "spec.containers[0].image: Required value" in told
    assert "must be an integer" in told
    assert (
        'spec.tolerations[0].operator: Unsupported value: "Is": supported values: "Equal", "Exists"' in told
    )


def test_the_pods_of_a_workload_are_looked_at_before_it_makes_them(cluster: Cluster, namespace: str) -> None:
    half = pod(container={"resources": {"limits": {GPU: "0.5"}}}, restartPolicy="Never")
    template = {"metadata": {"labels": {"app": "a"}}, "spec": half["spec"]}
    spec = {"selector": {"matchLabels": {"app": "a"}}, "template": template}
    workload = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "w"}, "spec": spec}

    with pytest.raises(ApiRefused) as refused:
        cluster.api.create(workload, namespace)

    assert refused.value.status == 422
    assert f'spec.template.{RESOURCES}.limits[{GPU}]: Invalid value: "500m": must be' in str(refused.value)
    assert 'spec.template.spec.restartPolicy: Unsupported value: "Never"' in str(refused.value)


def test_a_pod_stays_what_it_was_made_as(cluster: Cluster, namespace: str) -> None:
    path = paths.pod("p", namespace)
    stored = cluster.api.create(pod(), namespace)
    for change in ({"nodeName": "elsewhere"}, {"schedulerName": "other"}):
        with pytest.raises(ApiRefused) as refused:
            cluster.api.patch(path, {"spec": change})
        assert refused.value.status == 422
        assert UNCHANGEABLE in str(refused.value)
    with pytest.raises(ApiRefused, match="pod updates may not add or remove containers"):
        cluster.api.patch(path, {"spec": {"initContainers": [{"name": "a", "image": "b"}]}})

    assert cluster.api.get(path)["spec"] == stored["spec"]


def test_a_pod_with_gates_may_still_be_sent_elsewhere_but_not_bound(cluster: Cluster, namespace: str) -> None:
    gates = [{"name": "example.com/quota"}]
    path = paths.pod("p", namespace)
    cluster.api.create(pod(schedulingGates=gates, nodeSelector={"gpu": "h100"}), namespace)

    narrowed = cluster.api.patch(path, {"spec": {"nodeSelector": {"zone": "a"}}})
    with pytest.raises(ApiRefused, match=r"only additions to spec\.nodeSelector are allowed"):
        cluster.api.patch(path, {"spec": {"nodeSelector": {"gpu": "a100"}}})
    with pytest.raises(ApiRefused, match="only deletion is allowed, but found new scheduling gate 'a'"):
        cluster.api.patch(path, {"spec": {"schedulingGates": [*gates, {"name": "a"}]}})
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "node-0"}}
    with pytest.raises(ApiRefused, match=r"pod p has non-empty \.spec\.schedulingGates"):
        cluster.api.request("POST", f"{path}/binding", {"apiVersion": "v1", "kind": "Binding", **binding})

    assert narrowed["spec"]["nodeSelector"] == {"gpu": "h100", "zone": "a"}
