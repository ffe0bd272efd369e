"""``gpuctl describe`` tells all about one node, GPU or claim: forms, holders, taints, topology, events."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters import EmbeddedApiServer, Object
from tests.gpuctl.approved import approve
from tests.gpuctl.documents import read_document
from tests.gpuctl.fleet.published import FIRST, SECOND, XID, claim, devices, published
from tests.gpuctl.plan.printed import printed

TODAY = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?<!2026-01-02T03:04:0\d)Z")
"""A moment that the API server writes, and none of the tests' own."""

SITUATIONS = {
    "describe/node": "describe node node-a",
    "describe/gpu-sick": "describe gpu node-a/1",
    "describe/gpu-cut": "describe gpu node-a/0000:1b:00.0",
    "describe/gpu-ambiguous": "describe gpu 0000:1b:00.0",
    "describe/gpu-of-uuid": "describe gpu GPU-2406bdca-d225-5115-b6c5-7ce207c6e110",
    "describe/gpu-unknown": "describe gpu node-a/8",
    "describe/claim": "describe claim train -n team",
    "describe/claim-without-pod": "describe claim ci -n team",
    "describe/claim-unknown": "describe claim none -n team",
    "describe/node-unknown": "describe node node-x",
    "describe/pod": "describe pod train",
}
DRA = "/apis/resource.k8s.io/v1"
CLAIMS = f"{DRA}/namespaces/team/resourceclaims"
SAID = {"reason": "Xid", "message": "XID 79", "lastTransitionTime": "2026-01-02T03:04:06Z"}
CONDITION = {"type": "Ready", "status": "False", **SAID}


def event(name: str, kind: str, about: Object, message: str, namespace: str = "default") -> Object:
    involved = {key: about["metadata"].get(key, "") for key in ("name", "uid", "namespace")}
    told = {"type": "Warning", "reason": "GpuSick", "lastTimestamp": "2026-01-02T03:04:05Z"}
    metadata = {"name": name, "namespace": namespace}
    return {"metadata": metadata, "involvedObject": {"kind": kind, **involved}, "message": message, **told}


class Cluster:
    """A cluster with two nodes alike, a sick GPU that a claim has, and a partition that another has."""

    def __init__(self, server: EmbeddedApiServer, folder: Path) -> None:
        self.kubeconfig = str(server.write_kubeconfig(folder / "config"))
        server.create("/api/v1/namespaces", {"metadata": {"name": "team"}})
        for node in ("node-a", "node-b"):
            server.create("/api/v1/nodes", {"metadata": {"name": node}})
            slices = published(folder, node)
            for one in devices(slices, SECOND) if node == "node-a" else ():
                one["taints"] = [XID]
            for item in slices:
                server.create(f"{DRA}/resourceslices", item)
        node_a = {"metadata": {"name": "node-a", "uid": "node-a"}}
        for number, message in enumerate(
            ("GPU 1 (0000:43:00.0): XID 79", "GPU 5: fell ill", "the kubelet starts")
        ):
            server.create("/api/v1/namespaces/default/events", event(f"n{number}", "Node", node_a, message))
        for item in (claim("train", SECOND, pods=("train-0",)), claim("ci", f"{FIRST}-mig-1g-10gb-2")):
            status = item.pop("status")
            result = status["allocation"]["devices"]["results"][0]
            entry = {key: result[key] for key in ("driver", "pool", "device")}
            data = {"uuid": "GPU-x", "memoryBytes": 5}
            status["devices"] = [{**entry, "conditions": [CONDITION], "data": data}]
            stored = server.create(CLAIMS, item)
            status["allocation"]["nodeSelector"] = None
            path = f"{CLAIMS}/{item['metadata']['name']}/status"
            server.replace(path, {**stored, "status": status})
            told = event(f"c-{item['metadata']['name']}", "ResourceClaim", stored, "its GPU is sick", "team")
            server.create("/api/v1/namespaces/team/events", told)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster of this module's tests."""
    with EmbeddedApiServer() as server:
        yield Cluster(server, tmp_path_factory.mktemp("cluster"))


@pytest.mark.parametrize(("situation", "command"), SITUATIONS.items())
def test_the_answer_is_the_approved_one(cluster: Cluster, situation: str, command: str) -> None:
    text = printed(*command.split(), "--kubeconfig", cluster.kubeconfig, name=command)

    approve(situation, TODAY.sub("TIME", text))


@pytest.mark.parametrize(("kind", "name"), [("node", "node-a"), ("gpu", "node-a/1"), ("claim", "train")])
def test_scripts_get_the_sections_of_the_text(cluster: Cluster, kind: str, name: str) -> None:
    command = ("describe", kind, name, "-n", "team", "--kubeconfig", cluster.kubeconfig)
    text, scripts = printed(*command), printed(*command, "-o", "json")

    document = read_document(scripts.partition("\n")[2], "Description")
    assert document["of"] == kind
    blocks = [block.splitlines()[0] for block in text.partition("\n")[2].split("\n\n")]
    assert [section["title"] for section in document["sections"]] == blocks
