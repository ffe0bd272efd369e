"""``gpuctl status`` counts what is allocated, free and unavailable, and its exit code tells scripts."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from envtest.embedded.api.faults import ALWAYS
from envtest.embedded.server import EmbeddedApiServer
from gpuctl.__main__ import commands
from gpuctl.cli.cluster import ClusterView, connect_client
from gpuctl.fleet.cluster import states_of
from gpuctl.fleet.devices import tier_of
from gpuctl.fleet.follow import ClusterWatch
from gpuctl.plan.planned import plan_node
from gpuctl.status.picture import News
from tests.eventually import eventually
from tests.gpuctl.documents import read_document

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
HEEDING = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("gpuctl", run_name="__main__", alter_sys=True)
"""


def claim(device: str, *, pool: str = "node-a/gpu.nvidia.com", admin: bool = False) -> dict[str, Any]:
    result = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": pool, "device": device}
    if admin:
        result["adminAccess"] = True  # type: ignore[assignment]  # the other values are strings
    return {"metadata": {"name": device}, "status": {"allocation": {"devices": {"results": [result]}}}}


def slices(node: str = "node-a") -> list[dict[str, Any]]:
    return list(plan_node("a30-quad", node, None).slices)


def test_a_tier_counts_what_is_allocated_and_free() -> None:
    held, watched = claim("gpu-0000-17-00-0"), claim("gpu-0000-65-00-0", admin=True)
    elsewhere = claim("gpu-0000-ca-00-0", pool="node-b/gpu.nvidia.com")

    node, _ = states_of(slices(), [held, watched, elsewhere, {"status": {}}])

    assert node.product == "NVIDIA A30"
    (tier,) = node.tiers.values()
    assert list(node.tiers) == ["whole"]
    assert (tier.devices, tier.allocated, tier.free, tier.unavailable, tier.claims) == (4, 1, 3, 0, 1)


def test_a_tainted_device_is_unavailable_and_not_free() -> None:
    published = slices()
    taint = {"key": "gpu.nvidia.com/lost", "effect": "NoSchedule"}
    published[0]["spec"]["devices"][2]["taints"] = [taint]
    published[0]["spec"]["devices"][3]["taints"] = [{**taint, "effect": "None"}]

    (node,) = states_of(published, ())

    assert (node.tiers["whole"].free, node.tiers["whole"].unavailable) == (3, 1)
    assert [(one.gpu, one.devices, list(map(str, one.taints))) for one in node.tainted] == [
        ("0000:ca:00.0", ("gpu-0000-ca-00-0",), ["gpu.nvidia.com/lost:NoSchedule"]),
        ("0000:e3:00.0", ("gpu-0000-e3-00-0",), ["gpu.nvidia.com/lost:None"]),
    ]


def test_slices_of_an_old_generation_do_not_count_and_a_missing_one_is_told() -> None:
    (old,) = slices()
    new = json.loads(json.dumps(old))
    new["metadata"]["name"] = "newer"
    new["spec"]["pool"] |= {"generation": 2, "resourceSliceCount": 2}
    new["spec"]["devices"] = new["spec"]["devices"][:1]

    (node,) = states_of([old, new], ())

    assert node.pool_problem == "1 of 2 slices of generation 2 are published"
    assert node.tiers["whole"].devices == 1


def test_each_pool_of_a_node_has_its_own_generations() -> None:
    (one,) = slices()
    other = json.loads(json.dumps(one))
    other["metadata"]["name"] = "other"
    other["spec"]["pool"] |= {"name": "other", "generation": 7}
    other["spec"]["devices"] = [{**other["spec"]["devices"][0], "name": "gpu-0000-f0-00-0"}]

    (node,) = states_of([one, other], ())

    assert (node.tiers["whole"].devices, node.tiers["whole"].free) == (5, 5)


def test_forms_of_devices_are_tiers() -> None:
    def device(form: str, **more: Any) -> dict[str, Any]:
        return {"attributes": {"type": {"string": form}, **more.pop("attributes", {})}, **more}

    assert tier_of(device("gpu")) == "whole"
    assert tier_of(device("gpu", allowMultipleAllocations=True)) == "fractional"
    sliced = {"sharing": {"string": "time-slicing"}}
    assert (
        tier_of(device("shared", allowMultipleAllocations=True, attributes=sliced)) == "shared, time-slicing"
    )
    held = {**sliced, "memoryIsolation": {"string": "cgroup"}}
    assert (
        tier_of(device("shared", allowMultipleAllocations=True, attributes=held))
        == "shared, time-slicing, memory held"
    )
    assert (
        tier_of(device("gpu", allowMultipleAllocations=True, attributes=held))
        == "fractional, time-slicing, memory held"
    )
    served = {"sharing": {"string": "mps"}, "profile": {"string": "1g.10gb"}}
    in_partition = device("shared", allowMultipleAllocations=True, attributes=served)
    assert tier_of(in_partition) == "mig 1g.10gb, shared, mps"
    assert tier_of(device("mig", attributes={"profile": {"string": "1g.10gb"}})) == "mig 1g.10gb"
    assert tier_of(device("vfio")) == "vfio"


def test_a_large_cluster_is_read_in_pages_and_whole(tmp_path: Path) -> None:
    with EmbeddedApiServer() as server:
        for index in range(501):
            server.create("/api/v1/nodes", {"metadata": {"name": f"node-{index}"}})
        view = ClusterView.connect(server.write_kubeconfig(tmp_path / "config"))

        nodes = view.nodes()

        assert len({node["metadata"]["name"] for node in nodes}) == len(nodes) == 501
        assert nodes[0]["kind"] == "Node"
        assert server.count("list", "nodes") == 2


def test_the_exit_code_says_whether_all_is_well(tmp_path: Path) -> None:
    with EmbeddedApiServer() as server:
        kubeconfig = str(server.write_kubeconfig(tmp_path / "config"))

        def run(*arguments: str) -> Any:
            return CliRunner().invoke(commands, ["status", "--kubeconfig", kubeconfig, *arguments])

        assert "no node publishes GPUs" in run().output
        (item,) = slices()
        stored = server.create("/apis/resource.k8s.io/v1/resourceslices", item)
        well = run()
        stored["spec"]["devices"][0]["taints"] = [{"key": "gpu.nvidia.com/lost", "effect": "NoExecute"}]
        server.replace(f"/apis/resource.k8s.io/v1/resourceslices/{stored['metadata']['name']}", stored)
        tainted, told = run(), run("-o", "json")

    assert well.exit_code == 0
    assert "all is well" in well.output
    assert tainted.exit_code == 3
    assert "node-a: gpu-0000-17-00-0 is tainted gpu.nvidia.com/lost:NoExecute" in tainted.output
    assert told.exit_code == 3
    assert json.loads(told.output)["nodes"][0]["tiers"]["whole"]["free"] == 3


def create_waiting(
    server: EmbeddedApiServer, name: str, limits: dict[str, str], reason: str = "Unschedulable"
) -> None:
    """A pod that the scheduler found no place for."""
    container = {"name": "main", "image": "a", "resources": {"limits": limits}}
    unplaced = {"type": "PodScheduled", "status": "False", "reason": reason, "message": f"because of {name}"}
    create_pod(server, name, {"containers": [container]}, {"phase": "Pending", "conditions": [unplaced]})


def create_pod(
    server: EmbeddedApiServer, name: str, spec: dict[str, Any], status: dict[str, Any], **labels: str
) -> dict[str, Any]:
    path = "/api/v1/namespaces/default/pods"
    spec = {"containers": [{"name": "main", "image": "a"}], **spec}
    pod = server.create(path, {"metadata": {"name": name, "labels": labels}, "spec": spec})
    server.replace(f"{path}/{name}/status", {**pod, "status": status})
    return pod


def tell(server: EmbeddedApiServer, about: dict[str, Any], reason: str, message: str, by: str) -> None:
    """A warning, as the kubelet or the driver posts it."""
    event = {"involvedObject": about, "reason": reason, "message": message, "reportingComponent": by}
    more = {"metadata": {"generateName": "x-"}, "type": "Warning", "lastTimestamp": "2026-01-02T03:04:05Z"}
    server.create("/api/v1/namespaces/default/events", {**event, **more})


def break_nodes(server: EmbeddedApiServer) -> None:
    """Of three nodes the plugin is gone from two, and so are their slices; a claim has a device of one."""
    server.create(SLICES, slices()[0])
    claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
    held = claim("train", pool="node-b/gpu.nvidia.com")
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
    stored = server.create(
        claims, {"metadata": {"name": "train"}, "spec": {"devices": {"requests": [request]}}}
    )
    server.replace(f"{claims}/train/status", {**stored, "status": held["status"]})
    why = "containers with unready status: [controller]"
    for node, ready in (("node-a", "True"), ("node-b", "False"), ("node-c", "False")):
        condition = {"type": "Ready", "status": ready, "message": why}
        status = {"phase": "Running", "conditions": [condition]}
        label = {"app.kubernetes.io/part-of": "gpu-dra"}
        create_pod(server, f"controller-{node}", {"nodeName": node}, status, **label)


def break_pods(server: EmbeddedApiServer) -> None:
    """Pods that cannot be prepared, have no image, are given up by the scheduler, or wait."""
    server.create(SLICES, slices()[0])
    asks = {"nodeName": "node-a", "resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}]}
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}
    image = {"name": "main", "image": "a", "imageID": "", "ready": False, "restartCount": 0}
    statuses = [{**image, "state": waiting}]
    create_pod(server, "no-image", asks, {"phase": "Pending", "containerStatuses": statuses})
    pod = create_pod(server, "not-prepared", asks, {"phase": "Pending"})
    create_pod(server, "starts", asks, {"phase": "Pending"})
    about = {"kind": "Pod", "namespace": "default", "name": "not-prepared", "uid": pod["metadata"]["uid"]}
    tell(server, about, "FailedPrepareDynamicResources", "strategy MPZ (permanent)", "kubelet")
    create_waiting(server, "given-up", {"nvidia.com/gpu": "1"}, "SchedulerError")
    for number in range(7):
        create_waiting(server, f"train-{number}", {"nvidia.com/gpu": "1"})
    create_waiting(server, "web", {"cpu": "1"})


FIVE_PODS = ", ".join(f"default/train-{number}" for number in range(5))


def withhold(server: EmbeddedApiServer) -> None:
    """A node publishes three of its GPUs, another one nothing; their controllers have said why."""
    published = slices()[0]
    gone = published["spec"]["devices"].pop()
    server.create(SLICES, published)
    kept = published["spec"]["devices"][0]
    reasons = {"node-a": "it is in MIG mode, but has no partitions", "node-b": "its layout does not fit"}
    for node, device in (("node-a", gone), ("node-a", kept), ("node-b", kept), ("node-b", gone)):
        pci = device["attributes"]["resource.kubernetes.io/pciBusID"]["string"]
        message = f"GPU {pci} is not offered: {reasons[node]}"
        tell(server, {"kind": "Node", "name": node}, "GpuWithheld", message, "gpu-dra-controller")


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (
            break_nodes,
            (
                "node-b: it publishes nothing, although claims have devices there (default/train): `gpuctl",
                "2 pods of the driver are not ready: default/controller-node-b on node-b (containers with",
            ),
        ),
        (
            break_pods,
            (
                f"7 pods wait for devices: {FIVE_PODS} and 2 more; gpuctl explain says why",
                "2 pods cannot start: default/no-image, default/not-prepared; gpuctl explain says why",
                "the scheduler gives up default/given-up: because of given-up; gpuctl explain says more",
            ),
        ),
        (
            withhold,
            (
                "node-a: GPU 0000:e3:00.0 is not offered: it is in MIG mode, but has no partitions",
                "node-b: 2 GPUs are not offered: its layout does not fit",
            ),
        ),
    ],
)
def test_what_no_slice_shows_is_told_and_not_well(
    broken: Callable[[EmbeddedApiServer], None], told: tuple[str, ...], tmp_path: Path
) -> None:
    with EmbeddedApiServer() as server:
        broken(server)
        shown = status_of(server, tmp_path)
        document = read_document(status_of(server, tmp_path, flags=("-o", "json")).output, "GpuStatus")

    assert shown.exit_code == 3
    assert "all is well" not in shown.output
    for words in told:
        assert words in shown.output
    lines = shown.output.splitlines()
    assert set(document["problems"]) <= set(lines)
    assert not any(line.startswith("node-a: GPU 0000:17:00.0") for line in lines)  # it is published now


def dynamic_slices(folder: Path, machine: str = "hgx-h100") -> list[dict[str, Any]]:
    """What a node publishes whose GPU 0 may be cut into 1g, 2g and 3g, and the others not."""
    config = folder / "node.yaml"
    profiles = "{dynamic: {profiles: [1g, 1g+me, 2g, 3g]}}"
    config.write_text(f"version: v1\nrules:\n- when: gpu.index == 0\n  mig: {profiles}\n- mig: off\n")
    return list(plan_node(machine, "node-a", config).slices)


def counts(state: Any, tier: str) -> tuple[int, int, int, int, int]:
    found = state.tiers[tier]
    assert found.devices == found.allocated + found.free + found.excluded + found.unavailable
    return found.devices, found.allocated, found.free, found.at_once, found.excluded


def test_forms_of_one_gpu_exclude_each_other(tmp_path: Path) -> None:
    published = dynamic_slices(tmp_path)

    (idle,) = states_of(published, ())
    (cut,) = states_of(published, [claim("gpu-0000-1b-00-0-mig-3g-40gb-4")])
    (whole,) = states_of(published, [claim("gpu-0000-1b-00-0")])

    assert counts(idle, "whole") == (8, 0, 8, 8, 0)
    assert counts(idle, "mig 1g.10gb") == (7, 0, 7, 7, 0)
    assert counts(cut, "whole") == (8, 0, 7, 7, 1)
    assert counts(cut, "mig 1g.10gb") == (7, 0, 4, 4, 3)
    assert counts(cut, "mig 2g.20gb") == (3, 0, 2, 2, 1)
    assert counts(cut, "mig 3g.40gb") == (2, 1, 1, 1, 0)
    assert counts(whole, "whole") == (8, 1, 7, 7, 0)
    assert counts(whole, "mig 1g.10gb") == (7, 0, 0, 0, 7)


def test_partitions_that_share_an_engine_are_free_each_by_itself_but_not_at_once(tmp_path: Path) -> None:
    (idle,) = states_of(dynamic_slices(tmp_path), ())
    (one_taken,) = states_of(dynamic_slices(tmp_path), [claim("gpu-0000-1b-00-0-mig-1g-10gb-me-6")])

    assert counts(idle, "mig 1g.10gb+me") == (7, 0, 7, 1, 0)
    assert counts(one_taken, "mig 1g.10gb+me") == (7, 1, 0, 0, 6)


def test_a_look_on_with_admin_access_takes_no_counters(tmp_path: Path) -> None:
    (state,) = states_of(dynamic_slices(tmp_path), [claim("gpu-0000-1b-00-0", admin=True)])

    assert counts(state, "mig 1g.10gb") == (7, 0, 7, 7, 0)


def test_nothing_of_a_pool_that_cannot_be_used_is_free(tmp_path: Path) -> None:
    counters, devices = dynamic_slices(tmp_path)

    (state,) = states_of([devices], ())

    assert state.pool_problem == "1 of 2 slices of generation 1 are published"
    assert {(tier.free, tier.excluded) for tier in state.tiers.values()} == {(0, 0)}
    assert "sharedCounters" in counters["spec"]


def status_of(
    server: EmbeddedApiServer, folder: Path, *slices: dict[str, Any], flags: tuple[str, ...] = ()
) -> Any:
    for item in slices:
        server.create("/apis/resource.k8s.io/v1/resourceslices", item)
    kubeconfig = str(server.write_kubeconfig(folder / "config"))
    return CliRunner().invoke(
        commands, ["status", "--kubeconfig", kubeconfig, *flags], catch_exceptions=False
    )


def test_why_a_gpu_has_no_partitions_and_why_one_is_blocked_is_told(tmp_path: Path) -> None:
    withheld = dynamic_slices(tmp_path, "a30-quad")[0]
    blocked = json.loads(json.dumps(dynamic_slices(tmp_path)))
    device = blocked[1]["spec"]["devices"][0]
    device["taints"] = [{"key": "gpu.nvidia.com/blocked", "value": "in-use", "effect": "NoSchedule"}]

    with EmbeddedApiServer() as server:
        first = status_of(server, tmp_path, withheld)
    with EmbeddedApiServer() as server:
        second = status_of(server, tmp_path, *blocked)

    assert first.exit_code == 0
    assert "node-a: gpu-0000-17-00-0: no partitions: MIG mode is off and changes only with a" in first.output
    assert second.exit_code == 3
    told = (
        f"node-a: GPU 0 (0000:1b:00.0): {device['name']} is tainted gpu.nvidia.com/blocked=in-use:NoSchedule"
    )
    assert told in second.output


def test_the_devices_of_a_lost_gpu_are_told_in_one_line(tmp_path: Path) -> None:
    published = json.loads(json.dumps(dynamic_slices(tmp_path)))
    lost = {"key": "gpu.nvidia.com/lost", "effect": "NoSchedule"}
    forms = [one for one in published[1]["spec"]["devices"] if one["name"].startswith("gpu-0000-1b-00-0")]
    for device in forms:
        device["taints"] = [lost]

    with EmbeddedApiServer() as server:
        told = status_of(server, tmp_path, *published)

    lines = [line for line in told.output.splitlines() if "tainted" in line]
    assert len(forms) > 10
    gpu = f"GPU 0 (0000:1b:00.0): all of its {len(forms)} devices"
    assert lines == [f"node-a: {gpu} are tainted gpu.nvidia.com/lost:NoSchedule"]


def test_it_prints_columns_as_kubectl_does_and_names(tmp_path: Path) -> None:
    with EmbeddedApiServer() as server:
        table = status_of(server, tmp_path, *dynamic_slices(tmp_path)).output.splitlines()
        wide = status_of(server, tmp_path, flags=("-o", "wide")).output.splitlines()
        names = status_of(server, tmp_path, flags=("-o", "name")).output

    heads = "NODE GPU TIER DEVICES ALLOCATED FREE AT-ONCE EXCLUDED UNAVAILABLE CLAIMS"
    assert table[0].split() == heads.split()
    assert wide[0].split() == [*heads.split(), "CLAIMS-LEFT", "DRIVER"]
    media = next(line for line in table if "1g.10gb+me" in line)
    assert re.split(" {2,}", media) == [
        *("node-a", "NVIDIA H100 80GB HBM3", "mig 1g.10gb+me"),
        *("7", "0", "7", "1", "0", "0", "0"),
    ]
    assert names == "node/node-a\n"


@contextmanager
def watching(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A gpuctl that goes on until Ctrl-C, and at the end of the block at the latest."""
    command = [sys.executable, "-c", HEEDING, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_it_goes_on_with_what_changes_until_it_is_interrupted(tmp_path: Path) -> None:
    (item,) = slices()
    with EmbeddedApiServer() as server:
        stored = server.create(SLICES, item)
        kubeconfig = str(server.write_kubeconfig(tmp_path / "config"))

        def change(taints: list[dict[str, str]]) -> None:
            nonlocal stored
            stored = json.loads(json.dumps(stored))
            stored["spec"]["devices"][0]["taints"] = taints
            stored = server.replace(f"{SLICES}/{stored['metadata']['name']}", stored)

        with watching("status", "-w", "--kubeconfig", kubeconfig) as process:
            assert process.stdout is not None
            first = [process.stdout.readline() for _ in range(4)]
            change([{"key": "gpu.nvidia.com/lost", "effect": "NoExecute"}])
            tainted = [process.stdout.readline() for _ in range(2)]
            change([])
            well = [process.stdout.readline() for _ in range(2)]
            lists = server.count("list", "resourceslices")
            process.send_signal(signal.SIGINT)
            code = process.wait(30)

    sentence = "node-a: gpu-0000-17-00-0 is tainted gpu.nvidia.com/lost:NoExecute\n"
    assert first[0].startswith("NODE ")
    assert first[3] == "all is well\n"
    assert re.split(" {2,}", tainted[0].strip())[3:] == ["4", "0", "3", "3", "0", "1", "0"]
    assert tainted[1] == sentence
    assert re.split(" {2,}", well[0].strip())[3:] == ["4", "0", "4", "4", "0", "0", "0"]
    assert well[1] == f"resolved: {sentence}"
    assert code == 130
    assert lists == 2  # the first picture and the reflector's: nothing was asked again


def test_what_is_new_is_told_once(tmp_path: Path) -> None:
    published = dynamic_slices(tmp_path)
    idle = states_of(published, ())
    news = News(idle, wide=False)

    same = news.lines(states_of(published, ()))
    held = news.lines(states_of(published, [claim("gpu-0000-1b-00-0")]))
    again = news.lines(states_of(published, [claim("gpu-0000-1b-00-0")]))
    failing = news.lines(states_of(published, [claim("gpu-0000-1b-00-0")]), ["1 pod cannot start: a/b"])
    nothing = news.lines([])

    assert (same, again) == ([], [])
    assert any(line.split()[-7:] == ["8", "1", "7", "7", "0", "0", "1"] for line in held)
    assert failing == ["1 pod cannot start: a/b"]
    assert {"gone: node-a, whole", "resolved: 1 pod cannot start: a/b"} <= set(nothing)


def test_what_a_user_may_not_read_is_named_once_and_in_a_watch(tmp_path: Path) -> None:
    with EmbeddedApiServer() as server:
        for path in ("/api/v1/pods", "/api/v1/namespaces/default/events"):
            server.fail("list", path, code=403, times=ALWAYS)
        told = status_of(server, tmp_path, *slices())
        with ClusterWatch(connect_client(tmp_path / "config")) as watch:
            seen = eventually("everything is read that may be", watch.snapshot)

    assert told.exit_code == 0
    assert "all is well\nnot checked, because this user may not read them: pods, events\n" in told.output
    assert seen is not None
    assert (len(seen.slices), seen.unread) == (1, ("events", "pods"))
