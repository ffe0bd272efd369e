"""``gpuctl describe`` tells all about one node, GPU or claim: forms, holders, taints, topology, events."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from driver.errors import ConfigError
from envtest.embedded.server import EmbeddedApiServer
from gpuctl.__main__ import commands
from gpuctl.describe.claim import claim_sections
from gpuctl.describe.gpu import holders_section
from gpuctl.describe.sections import Section
from gpuctl.fleet.cluster import views_of
from gpuctl.fleet.devices import Taint, meaning
from tests.gpuctl.documents import read_document
from tests.gpuctl.fleet.published import FIRST, SECOND, THIRD, XID, Object, claim, devices, published

DRA = "/apis/resource.k8s.io/v1"
CLAIMS = f"{DRA}/namespaces/team/resourceclaims"
CONDITION = {
    "type": "Ready",
    "status": "False",
    "reason": "Xid",
    "message": "XID 79",
    "lastTransitionTime": "2026-01-02T03:04:06Z",
}


def event(name: str, kind: str, about: Object, message: str, namespace: str = "default") -> Object:
    involved = {"kind": kind, "name": about["metadata"]["name"], "uid": about["metadata"].get("uid", "")}
    return {
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": {**involved, "namespace": about["metadata"].get("namespace", "")},
        "type": "Warning",
        "reason": "GpuSick",
        "message": message,
        "lastTimestamp": "2026-01-02T03:04:05Z",
    }


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
        for item in (
            claim("train", SECOND, pods=("train-0",)),
            claim("ci", f"{FIRST}-mig-1g-10gb-2"),
        ):
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

    def run(self, *words: str) -> str:
        arguments = ["describe", *words, "--kubeconfig", self.kubeconfig]
        found = CliRunner().invoke(commands, arguments, catch_exceptions=False)
        assert found.exit_code == 0, found.output
        return found.stdout

    def told(self, *words: str) -> dict[str, Any]:
        """The sections of the document, by their titles."""
        document = read_document(self.run(*words, "-o", "json"), "Description")
        return {one["title"]: one for one in document["sections"]}


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    with EmbeddedApiServer() as server:
        yield Cluster(server, folder)


def test_a_gpu_is_told_with_holders_taints_topology_and_its_own_events(tmp_path: Path) -> None:
    with cluster(tmp_path) as found:
        told = found.told("gpu", "node-a/1")
        text = found.run("gpu", "node-a/0000:1b:00.0")

    assert told["GPU 1 of node-a"]["fields"]["Health"] == "sick: see Taints"
    assert told["Attributes"]["fields"]["nvlinkPeerLinks"] == "18"
    (held,) = told["Held by"]["rows"]
    assert (held["claim"], held["pods"], held["class"], held["part"]) == (
        *("team/train", "train-0", "large"),
        "100 %",
    )
    (taint,) = told["Taints"]["rows"]
    assert taint["taint"] == "gpu.nvidia.com/xid=79:NoSchedule"
    assert taint["meaning"].startswith("XID 79 (the GPU fell off the bus): drain the node and restart")
    assert taint["since"] == XID["timeAdded"]
    assert {row["path"] for row in told["Topology"]["rows"]} == {"NV18"}
    assert len(told["Topology"]["rows"]) == 7
    assert [row["message"] for row in told["Events"]["rows"]] == ["GPU 1 (0000:43:00.0): XID 79"]
    assert "mig 2g.20gb" in text
    assert "team/ci" in text
    assert "▓" in text


def test_a_gpu_is_found_by_uuid_and_a_name_that_several_have_is_refused(tmp_path: Path) -> None:
    with cluster(tmp_path) as found:
        uuid = found.told("gpu", "node-b/1")["GPU 1 of node-b"]["fields"]["UUID"]
        with pytest.raises(ConfigError, match=r"2 GPUs are called 0000:1b:00\.0, on node-a, node-b"):
            found.run("gpu", "0000:1b:00.0")
        with pytest.raises(ConfigError, match="node node-a has no GPU 8"):
            found.run("gpu", "node-a/8")
        with pytest.raises(ConfigError, match="2 GPUs are called"):
            found.run("gpu", uuid)  # the fake boards of two machines alike are alike


def test_a_node_is_told_with_its_gpus_and_what_happened(tmp_path: Path) -> None:
    with cluster(tmp_path) as found:
        told = found.told("node", "node-a")
        text = found.run("node", "node-a")
        with pytest.raises(ConfigError, match="node-x publishes nothing"):
            found.run("node", "node-x")

    assert told["Node node-a"]["fields"]["Pool"] == "can be used"
    assert [row["health"] for row in told["GPUs"]["rows"]][:3] == [
        "ok",
        "gpu.nvidia.com/xid=79:NoSchedule",
        "ok",
    ]
    assert {row["claim"] for row in told["Held by"]["rows"]} == {"team/train", "team/ci"}
    assert len(told["Events"]["rows"]) == 3
    assert "NV18" in text


def test_a_claim_is_told_with_its_requests_devices_and_conditions(tmp_path: Path) -> None:
    with cluster(tmp_path) as found:
        told = found.told("claim", "train", "-n", "team")
        with pytest.raises(ConfigError, match="there is no claim team/none"):
            found.run("claim", "none", "-n", "team")

    assert told["ResourceClaim team/train"]["fields"]["State"] == "in use"
    assert told["Requests"]["rows"] == [
        {"request": "gpu", "class": "large", "count": "1", "capacity": "-", "selectors": "-"}
    ]
    (device,) = told["Devices"]["rows"]
    assert (device["node"], device["gpu"], device["what"]) == ("node-a", "1", "whole")
    (condition,) = told["Conditions"]["rows"]
    assert (condition["of"], condition["status"], condition["message"]) == (SECOND, "False", "XID 79")
    assert told["Taints"]["rows"][0]["taint"] == "gpu.nvidia.com/xid=79:NoSchedule"
    assert [row["pod"] for row in told["Pods"]["rows"]] == ["train-0"]
    assert [row["message"] for row in told["Events"]["rows"]] == ["its GPU is sick"]
    assert {"device": SECOND, "what": "memoryBytes", "value": "5"} in told["Device status"]["rows"]


def test_a_share_by_number_shows_how_much_of_the_gpu_it_is_and_who_looks_on_has_nothing(
    tmp_path: Path,
) -> None:
    slices = published(tmp_path)
    share = str(devices(slices, THIRD)[0]["name"])
    consumed: Object = {"consumedCapacity": {"memory": "0", "shares": "1"}, "shareID": "s-1"}
    lab, monitor = claim("lab", share, **consumed), claim("monitor", share, adminAccess=True)
    views = views_of(slices, [lab, monitor])

    by_gpu = holders_section(views[0].gpus)
    (of_claim,) = (one for one in claim_sections(lab, views, ()) if one.title == "Devices")

    assert {row["claim"]: row["memory"] for row in by_gpu.rows} == {
        "team/lab": "25%",
        "team/monitor": "-",
    }
    assert [(row["share"], row["memory"]) for row in of_claim.rows] == [("shares 1", "25%")]


def test_a_section_without_anything_says_none() -> None:
    assert Section("Taints").text() == "Taints\n  none"
    assert meaning(Taint("example.com/mine", "", "NoSchedule")) == "not set by this driver"
