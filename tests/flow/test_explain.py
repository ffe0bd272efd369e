"""``gpuctl explain`` names the true reason of each way in which a pod can have to wait, on either cluster."""

import json
from collections.abc import Iterator
from functools import partial

import pytest
from click.testing import CliRunner

from tests.clusters import Cluster, Object, commands, paths, wait_for
from tests.eventually import eventually
from tests.flow.scene import Scene
from tests.flow.situations import SITUATIONS, Situation

CLUSTER_WIDE = ("ResourceSlice", "DeviceClass", "DeviceTaintRule")


@pytest.fixture
def scene(cluster: Cluster, namespace: str) -> Iterator[Scene]:
    """An empty scene; what it made outside of its namespace is gone at the end."""
    scene = Scene(namespace, cluster.nodes[0].name)
    yield scene
    for made in scene.objects:
        if made["kind"] in CLUSTER_WIDE and not (
            made["kind"] == "DeviceTaintRule" and cluster.kubernetes == "1.36"
        ):
            cluster.api.delete(cluster.api.path_of(made))


def explained(cluster: Cluster, namespace: str, *arguments: str) -> tuple[int, str]:
    """Exit code and output of ``gpuctl explain``."""
    where = ("-n", namespace, "--kubeconfig", str(cluster.admin))
    result = CliRunner().invoke(commands, ["explain", *arguments, *where], catch_exceptions=False)
    return result.exit_code, result.output


def reasons(told: Object) -> list[tuple[str, str]]:
    """All kinds and gates of an explanation with their texts."""
    found = [(one["kind"], one["message"]) for one in told["findings"]]
    for request in told["requests"]:
        for node in request["nodes"]:
            found += [("pool", problem) for problem in node["pools"]]
            found += [("node", node["closed"])] if node.get("closed") else []
            found += [(one["gate"], f"{one['reason']} {one['devices']}") for one in node["outcomes"]]
    return found


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda situation: situation.name.replace(" ", "-"))
def test_the_reason_for_which_a_pod_waits_is_named(
    situation: Situation, scene: Scene, cluster: Cluster, namespace: str
) -> None:
    situation.build(scene)
    *before, waiting = scene.objects
    if cluster.kubernetes == "1.36" and any(made["kind"] == "DeviceTaintRule" for made in before):
        pytest.skip("resource.k8s.io/v1 has DeviceTaintRules since 1.37")
    for made in before:
        cluster.api.create(made, namespace)
    for name in situation.first:
        wait_for(cluster.api, paths.pod(name, namespace), lambda pod: bool(pod["spec"].get("nodeName")))
    cluster.api.create(waiting, namespace)
    pod = paths.pod("waiting", namespace)
    if situation.judged:
        wait_for(cluster.api, pod, _refused)
    told: Object = {}

    def named(answer: tuple[int, str]) -> bool:
        code, told = answer[0], json.loads(answer[1])
        hit = any(kind == situation.kind and situation.says in text for kind, text in reasons(told))
        helps = any(situation.helps in (one.get("remedy") or "") for one in told["findings"] or [{}])
        return hit and helps and code == 3 and told["verdict"] == "waits"

    explain = partial(explained, cluster, namespace, "pod", "waiting", "-o", "json")
    _, output = eventually(f"{situation.kind} is named", explain, named)
    told = json.loads(output)
    assert "nodeName" not in cluster.api.get(pod)["spec"]
    assert ("no node can ever serve it" in told["summary"]) is situation.never
    assert not (
        situation.never and any("wait until claim" in (one.get("remedy") or "") for one in told["findings"])
    )
    code, drawn = explained(cluster, namespace, "pod", "waiting")
    assert (code, f"pod {namespace}/waiting: it waits" in drawn) == (3, True)


def _refused(pod: Object) -> bool:
    """Whether the scheduler has said that the pod has no place, or that something is wrong with it."""
    conditions = pod.get("status", {}).get("conditions") or []
    return any(one["type"] == "PodScheduled" and one["status"] == "False" for one in conditions)
