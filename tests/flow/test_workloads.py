"""Deployments and Jobs make pods with GPUs: rolled out, scaled, ended and taken away as in Kubernetes."""

from typing import Any

from tests.clusters import Cluster, Object, paths, wait_for, wait_for_list, wait_gone
from tests.flow.claims import allocated, gpu_pod, make_template

LABELS = {"app": "web"}


def deployment_path(namespace: str) -> str:
    return f"/apis/apps/v1/namespaces/{namespace}/deployments/web"


def job_path(namespace: str, name: str) -> str:
    return f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}"


def deployment(replicas: int, **spec: Any) -> Object:
    """Pods that each have a GPU of their own."""
    template = {"metadata": {"labels": LABELS}, "spec": gpu_pod("web")["spec"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": LABELS}, "template": template, **spec},
    }


def job(name: str, *command: str, **spec: Any) -> Object:
    """A Job whose pods have a GPU each while they run this."""
    pod = gpu_pod(name)["spec"]
    pod["containers"][0]["command"] = [*command]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": {"spec": {**pod, "restartPolicy": "Never"}}, **spec},
    }


def wait_rolled_out(cluster: Cluster, namespace: str, replicas: int) -> Object:
    """What ``kubectl rollout status`` waits for: all pods are of the newest template and available."""

    def done(stored: Object) -> bool:
        status = stored.get("status", {})
        counts = [status.get(name, 0) for name in ("replicas", "updatedReplicas", "availableReplicas")]
        return bool(
            status.get("observedGeneration") == stored["metadata"]["generation"] and counts == [replicas] * 3
        )

    return wait_for(cluster.api, deployment_path(namespace), done, 120)


def replica_sets(cluster: Cluster, namespace: str) -> list[Object]:
    return cluster.api.list_objects(f"/apis/apps/v1/namespaces/{namespace}/replicasets")


def wait_pods(cluster: Cluster, namespace: str, count: int) -> list[Object]:
    """The pods, once there are so many and none ends."""

    def complete(pods: list[Object]) -> bool:
        return len(pods) == count and not any("deletionTimestamp" in pod["metadata"] for pod in pods)

    return wait_for_list(cluster.api, paths.pod(namespace=namespace), complete, 60)


def wait_devices(cluster: Cluster, namespace: str, count: int) -> set[str]:
    """The GPUs of the namespace's claims, once there are so many claims and all are allocated."""

    def complete(claims: list[Object]) -> bool:
        return len(claims) == count and all(one.get("status", {}).get("allocation") for one in claims)

    claims = wait_for_list(cluster.api, paths.resource_claim(namespace=namespace), complete, 60)
    return {device for claim in claims for device in allocated(claim)}


def conditions(item: Object) -> dict[str, tuple[str, str]]:
    """Status and reason of each condition."""
    return {one["type"]: (one["status"], one["reason"]) for one in item["status"]["conditions"]}


def wait_told(cluster: Cluster, namespace: str, kind: str, *reasons: str) -> None:
    """Wait until events of objects of a kind have these reasons: events are written late."""

    def told(events: list[Object]) -> bool:
        return {one["reason"] for one in events if one["involvedObject"]["kind"] == kind}.issuperset(reasons)

    wait_for_list(cluster.api, paths.event(namespace=namespace), told, 60)


def test_a_deployment_is_rolled_out_scaled_changed_and_taken_away(cluster: Cluster, namespace: str) -> None:
    make_template(cluster, namespace)
    cluster.api.create(deployment(2), namespace)

    stored = wait_rolled_out(cluster, namespace, 2)

    assert conditions(stored)["Available"] == ("True", "MinimumReplicasAvailable")
    (first,) = replica_sets(cluster, namespace)
    pods = wait_pods(cluster, namespace, 2)
    digest = first["metadata"]["labels"]["pod-template-hash"]
    assert first["metadata"]["name"] == f"web-{digest}"
    for pod in pods:
        assert pod["metadata"]["generateName"] == f"web-{digest}-"
        assert pod["metadata"]["labels"] == {**LABELS, "pod-template-hash": digest}
        (owner,) = pod["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == (
            *("ReplicaSet", first["metadata"]["uid"]),
            *(True, True),
        )
    assert len(wait_devices(cluster, namespace, 2)) == 2

    scale = cluster.api.patch(f"{deployment_path(namespace)}/scale", {"spec": {"replicas": 1}})
    assert (scale["kind"], scale["spec"]["replicas"], scale["status"]["selector"]) == ("Scale", 1, "app=web")
    wait_rolled_out(cluster, namespace, 1)
    (old,) = wait_pods(cluster, namespace, 1)
    wait_devices(cluster, namespace, 1)

    changed = {"template": {"metadata": {"annotations": {"example.com/note": "2"}}}}
    cluster.api.patch(deployment_path(namespace), {"spec": changed})
    wait_rolled_out(cluster, namespace, 1)
    (new,) = wait_pods(cluster, namespace, 1)
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    wait_for(
        cluster.api,
        deployment_path(namespace),
        lambda one: conditions(one).get("Progressing") == ("True", "NewReplicaSetAvailable"),
    )
    assert sorted(one["spec"]["replicas"] for one in replica_sets(cluster, namespace)) == [0, 1]
    wait_told(cluster, namespace, "Deployment", "ScalingReplicaSet")
    wait_told(cluster, namespace, "ReplicaSet", "SuccessfulCreate", "SuccessfulDelete")

    cluster.api.delete(deployment_path(namespace))
    wait_pods(cluster, namespace, 0)
    assert wait_devices(cluster, namespace, 0) == set()


def test_a_job_is_complete_when_enough_pods_have_done_their_work(cluster: Cluster, namespace: str) -> None:
    make_template(cluster, namespace)
    cluster.api.create(job("train", "true", completions=3, parallelism=2), namespace)

    stored = wait_for(cluster.api, job_path(namespace, "train"), lambda one: "Complete" in _types(one), 120)

    status = stored["status"]
    assert (status["succeeded"], status["ready"], status["terminating"]) == (3, 0, 0)
    assert status["uncountedTerminatedPods"] == {}
    assert "active" not in status
    assert "completionTime" in status
    assert conditions(stored) == {
        "SuccessCriteriaMet": ("True", "CompletionsReached"),
        "Complete": ("True", "CompletionsReached"),
    }
    uid, metadata = stored["metadata"]["uid"], stored["metadata"]
    assert stored["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    assert metadata["labels"]["batch.kubernetes.io/job-name"] == "train"
    pods = wait_pods(cluster, namespace, 3)
    assert {pod["status"]["phase"] for pod in pods} == {"Succeeded"}
    assert all(not pod["metadata"].get("finalizers") for pod in pods)
    wait_told(cluster, namespace, "Job", "SuccessfulCreate", "Completed")
    assert wait_devices(cluster, namespace, 0) == set()

    path = job_path(namespace, "train")
    cluster.api.request("DELETE", path, {"propagationPolicy": "Background"})  # by default its pods stay
    wait_gone(cluster.api, path)
    wait_pods(cluster, namespace, 0)


def _types(item: Object) -> set[str]:
    """The conditions that are told, whatever they say."""
    return {one["type"] for one in item.get("status", {}).get("conditions") or ()}
