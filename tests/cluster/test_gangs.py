"""Gangs on Kubernetes 1.37 with the gate GenericWorkload: they are explained, and room is made for them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from envtest.client import paths
from envtest.client.waiting import fresh_namespace, wait_gone
from envtest.real.cluster import RealCluster
from envtest.real.startup import start_cluster
from gpuctl.__main__ import commands
from gpuctl.demo.brisk import BRISK_ON_REAL
from gpuctl.demo.driver_node import DRIVER_NAMESPACE
from tests.flow.claims import request, start, wait_running, wait_unschedulable
from tests.flow.mig_scene import pod_of, template
from tests.flow.several_machines import installed_in
from tests.flow.test_preemption import MANIFEST, RIGHTS, preemptor

Object = dict[str, Any]

GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/{}/podgroups"
MACHINES = ("t4", "t4", "a30-quad")


@pytest.fixture(scope="module")
def cluster(kubernetes: str) -> Iterator[RealCluster]:
    """Two nodes with a T4 each, one with four A30s, two priorities, and the rights of the preemptor."""
    if kubernetes == "1.36":
        pytest.skip("1.36 has another version of PodGroups")
    with start_cluster(len(MACHINES), kubernetes, audit=True, gates=("GenericWorkload",)) as started:
        installed_in(started, BRISK_ON_REAL, MACHINES, (), "")
        started.api.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": DRIVER_NAMESPACE}}])
        started.api.apply([one for one in yaml.safe_load_all(MANIFEST.read_text()) if one["kind"] in RIGHTS])
        for name, value in (("batch", 10), ("urgent", 1000)):
            about = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
            started.api.create({**about, "metadata": {"name": name}, "value": value})
        yield started


@pytest.fixture
def namespace(cluster: RealCluster) -> Iterator[str]:
    with fresh_namespace(cluster.api) as name:
        yield name


def gang(cluster: RealCluster, namespace: str, templates: dict[str, str]) -> None:
    """A gang of these pods, each with the template of its claim; it comes once all of its pods are there."""
    policy = {"gang": {"minCount": len(templates)}}
    body = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "train"},
        "spec": {"schedulingPolicy": policy, "priorityClassName": "urgent"},
    }
    cluster.api.request("POST", GROUPS.format(namespace), body)
    for name, claim in templates.items():
        pod = pod_of(name, claim)
        pod["spec"] |= {"schedulingGroup": {"podGroupName": "train"}, "priorityClassName": "urgent"}
        cluster.api.create(pod, namespace)


def told(cluster: RealCluster, namespace: str, *target: str) -> Object:
    """What ``gpuctl explain`` tells scripts."""
    command = ["explain", *target, "-n", namespace, "-o", "json", "--kubeconfig", str(cluster.admin)]
    found: Object = json.loads(CliRunner().invoke(commands, command, catch_exceptions=False).output)
    return found


def on(architecture: str, more: str = "true") -> Object:
    """A request for a GPU of an architecture."""
    only = f"device.attributes['gpu.nvidia.com'].architecture == '{architecture}' && {more}"
    return request(selectors=[{"cel": {"expression": only}}])


def test_a_gang_waits_for_the_gpu_of_one_pod_which_the_preemptor_evicts(
    cluster: RealCluster, namespace: str
) -> None:
    template(cluster, namespace, "turing", on("Turing"))
    batch = pod_of("batch", "turing")
    batch["spec"]["priorityClassName"] = "batch"
    start(cluster, namespace, batch)
    workers = {f"worker-{number}": "turing" for number in range(2)}
    gang(cluster, namespace, workers)
    for name in workers:
        wait_unschedulable(cluster, namespace, name)

    answers = [told(cluster, namespace, "pod", name) for name in workers]
    group = told(cluster, namespace, "podgroup", "train")

    part = "1 of the 2 pods that have to be placed at once find a place"
    assert {one["summary"] for one in (*answers, group)} == {f"it waits with its group train: {part}"}
    assert [one["kind"] for one in group["findings"]] == ["room", "gang"]
    assert f"if {namespace}/batch, of lower priority, ended" in group["findings"][0]["message"]
    assert group["findings"][1]["message"].startswith("worker-1 is blocked: ")

    with preemptor(cluster):
        wait_gone(cluster.api, paths.pod("batch", namespace))
        for name in workers:
            wait_running(cluster, namespace, name)
    assert told(cluster, namespace, "podgroup", "train")["verdict"] == "runs"


def test_a_gang_waits_though_another_choice_of_devices_would_fit_all(
    cluster: RealCluster, namespace: str
) -> None:
    template(cluster, namespace, "any", on("Ampere"))
    start(cluster, namespace, pod_of("probe", "any"))
    claims = cluster.api.list_objects(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims")
    [chosen] = [one["status"]["allocation"]["devices"]["results"][0]["device"] for one in claims]
    cluster.api.delete(paths.pod("probe", namespace))
    wait_gone(cluster.api, paths.pod("probe", namespace))
    # The first pod gets the GPU that the scheduler chooses first, and the second can only use this one.
    _, domain, bus, device, function = chosen.split("-")
    address = f"{domain}:{bus}:{device}.{function}"
    only = f"device.attributes['resource.kubernetes.io'].pciBusID == '{address}'"
    template(cluster, namespace, "this", on("Ampere", only))

    gang(cluster, namespace, {"a-any": "any", "b-this": "this"})
    wait_unschedulable(cluster, namespace, "b-this")
    wait_unschedulable(cluster, namespace, "a-any")

    answer = told(cluster, namespace, "pod", "a-any")
    assert answer["verdict"] == "waits"
    otherwise = [one["message"] for one in answer["findings"] if one["kind"] == "gang-otherwise"]
    assert otherwise == ["all would fit with other nodes or devices: a-any on node-2, b-this on node-2"]
