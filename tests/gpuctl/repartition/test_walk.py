"""With ``--yes`` a node is emptied, an admin cuts its GPUs, and pods come back once the slices show it."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from driver.kube.errors import NotFound, Unreachable
from driver.nvml.pci_address import PciAddress
from envtest.client import paths
from envtest.embedded.cluster import EmbeddedCluster
from envtest.embedded.node.kubelet import KubeletTimes
from envtest.embedded.server import EmbeddedApiServer
from gpuctl.cli.cluster import ClusterView, connect_client
from gpuctl.demo.brisk import BRISK
from gpuctl.demo.driver_node import DriverNode
from gpuctl.repartition.in_the_way import PodInTheWay, claims_using, evict, set_cordon
from gpuctl.repartition.node_gpus import node_gpus
from gpuctl.repartition.run import Plan, carry_out
from gpuctl.repartition.wanted import commands_text, wanted_of
from tests import fork_server
from tests.flow.claims import gpu_pod, make_template, start, wait_published
from tests.gpuctl.repartition.node_admin import run_commands
from tests.gpuctl.repartition.scene import PODS, Scene

FIRST = "0000:1b:00.0"
PROJECT = Path(__file__).resolve().parents[3]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with EmbeddedApiServer() as server:
        scene = Scene(server, tmp_path)
        scene.publish()
        yield scene


class Walked:
    """One walk over the first GPU of a scene; each pause plays the next of ``acts``, and the last again."""

    def __init__(self, scene: Scene, *acts: Callable[[], object], layout: str = "3g,3g") -> None:
        self.said: list[str] = []
        self._acts = list(acts)
        self._scene = scene
        gpus = [gpu for gpu in scene.gpus() if str(gpu.pci) == FIRST]
        self.wanted = wanted_of(gpus, tuple(layout.split(",")), None)
        self.commands = commands_text(self.wanted, layout)

    def run(self, *, cordoned: bool = False, timeout_seconds: float = 60.0) -> tuple[str, ...]:
        """What is missing at the end."""
        plan = Plan("node-a", cordoned, (), self.wanted, (), self.commands)
        client = connect_client(self._scene.kubeconfig)
        return carry_out(client, plan, timeout_seconds, self.said.append, self._pause)

    def _pause(self, _seconds: float) -> None:
        act = self._acts.pop(0) if len(self._acts) > 1 else self._acts[0]
        act()

    def said_about(self, text: str) -> list[str]:
        return [line for line in self.said if text in line]


def cut_and_publish(scene: Scene, walked: Callable[[], Walked]) -> Callable[[], None]:
    def act() -> None:
        scene.cut(walked().commands)
        scene.publish()

    return act


def test_a_walk_ends_when_the_slices_show_the_partitions(scene: Scene) -> None:
    scene.claim("mine", "gpu-0000-1b-00-0", scene.pod("web"))
    walked = Walked(scene, scene.end_pods, cut_and_publish(scene, lambda: walked))

    assert walked.run() == ()
    assert scene.node == {}
    assert [line.split(":")[0] for line in walked.said] == [
        "node-a is cordoned",
        "waiting",
        "the GPUs are not in use any more; now run on node-a, as root",
        "waiting",
        "the slices show the wanted partitions",
        "node-a is uncordoned",
    ]
    assert walked.commands in walked.said[2]


def test_the_node_is_closed_before_the_first_pod_is_evicted(scene: Scene) -> None:
    scene.claim("mine", "gpu-0000-1b-00-0", scene.pod("web"))
    walked = Walked(scene, scene.end_pods, cut_and_publish(scene, lambda: walked))

    walked.run()

    writes = [
        (request.verb, request.resource, request.subresource)
        for request in scene.server.requests
        if request.verb in ("patch", "create")
    ]
    assert writes == [("patch", "nodes", ""), ("create", "pods", "eviction"), ("patch", "nodes", "")]


def test_a_pod_disruption_budget_is_waited_for(scene: Scene) -> None:
    scene.claim("mine", "gpu-0000-1b-00-0", scene.pod("web"))
    fault = scene.server.fail("create", "eviction", code=429, times=2)
    walked = Walked(scene, lambda: None, lambda: None, scene.end_pods, cut_and_publish(scene, lambda: walked))

    assert walked.run() == ()
    assert fault.times == 0
    assert scene.server.count("create", "pods") == 3
    (refused,) = walked.said_about("cannot be evicted")
    assert "pod default/web cannot be evicted" in refused


def test_a_claim_that_outlives_its_pods_is_waited_for(scene: Scene) -> None:
    scene.claim("idle", "gpu-0000-1b-00-0")

    missing = Walked(scene, lambda: None).run(timeout_seconds=0)

    assert missing == ("claim default/idle still has gpu-0000-1b-00-0",)


def test_when_the_time_is_over_the_node_stays_cordoned_and_what_is_there_is_told(scene: Scene) -> None:
    scene.cut(f"nvidia-smi -i {FIRST} -mig 1\nnvidia-smi mig -i {FIRST} -cgi 19:0 -C")
    scene.publish()

    result = scene.run("--layout", "3g,3g", "--gpu", FIRST, "--yes", "--timeout", "0")

    assert result.exit_code == 3
    assert f"{FIRST}: published is 1g.10gb, wanted 2 x 3g.40gb" in result.stderr
    assert "node-a is left cordoned: `kubectl uncordon node-a` undoes that" in result.stderr
    assert f"nvidia-smi mig -i {FIRST} -cgi 9:0,9:4 -C" in result.stdout
    assert scene.node == {"unschedulable": True}


def test_gpus_that_the_driver_cuts_are_left_and_told_beside_those_that_wait(scene: Scene) -> None:
    scene.configure("- {when: gpu.index == 1, mig: dynamic}\n")
    scene.publish()

    arguments = ("--layout", "3g,3g", "--gpu", FIRST, "--gpu", "0000:43:00.0")
    result = scene.run(*arguments, "--yes", "--timeout", "0")

    assert result.exit_code == 3
    assert "0000:43:00.0 is left as it is, in dynamic mode: no drain is needed" in result.stderr
    assert "0000:43:00.0" not in result.stdout


def test_scripts_are_told_the_outcome_and_people_the_steps_on_stderr(scene: Scene) -> None:
    result = scene.run("--layout", "3g,3g", "--gpu", FIRST, "--yes", "--timeout", "0", "-o", "json")

    assert result.exit_code == 3
    assert '"done": false' in result.stdout
    assert "node-a is cordoned" in result.stderr
    assert "node-a is cordoned" not in result.stdout


def test_a_node_that_was_cordoned_before_stays_so(scene: Scene) -> None:
    walked = Walked(scene, cut_and_publish(scene, lambda: walked))

    assert walked.run(cordoned=True) == ()
    assert scene.server.count("patch", "nodes") == 0


def test_only_the_pods_of_the_gpus_that_change_are_evicted(scene: Scene) -> None:
    scene.claim("mine", "gpu-0000-1b-00-0", scene.pod("web"))
    scene.claim("far", "gpu-0000-43-00-0", scene.pod("far"))
    walked = Walked(scene, scene.end_pods, cut_and_publish(scene, lambda: walked))

    walked.run()

    assert [pod["metadata"]["name"] for pod in scene.server.objects("pods")] == ["far"]


def test_partitions_that_are_not_the_wanted_ones_do_not_count(scene: Scene) -> None:
    def others() -> None:
        scene.cut(f"nvidia-smi -i {FIRST} -mig 1\nnvidia-smi mig -i {FIRST} -cgi 9:0 -C")
        scene.publish()

    def incomplete() -> None:
        (one,) = scene.server.objects("resourceslices", "resource.k8s.io")
        pool = {**one["spec"]["pool"], "resourceSliceCount": 2, "generation": 2}
        stored = {**one, "spec": {**one["spec"], "pool": pool}}
        scene.server.replace(f"/apis/resource.k8s.io/v1/resourceslices/{one['metadata']['name']}", stored)

    def rest() -> None:
        scene.cut(f"nvidia-smi mig -i {FIRST} -cgi 9:4 -C")
        scene.publish()

    walked = Walked(scene, others, incomplete, rest)

    assert walked.run() == ()
    assert walked.said_about("published is whole, wanted 2 x 3g.40gb")
    assert walked.said_about("published is 3g.40gb, wanted 2 x 3g.40gb")
    assert walked.said_about("the slices of node-a are not complete")


def test_an_api_server_that_does_not_answer_is_asked_again(scene: Scene) -> None:
    scene.server.fail("list", "resourceslices", code=503, times=1)
    walked = Walked(scene, lambda: None, cut_and_publish(scene, lambda: walked))

    assert walked.run() == ()
    assert walked.said_about("was answered 503")


def test_a_cordon_that_fails_is_an_error_and_evicts_nobody(scene: Scene) -> None:
    scene.claim("mine", "gpu-0000-1b-00-0", scene.pod("web"))
    scene.server.fail("patch", "nodes", code=503)

    with pytest.raises(Unreachable):
        Walked(scene, lambda: None).run()

    assert scene.server.count("create", "pods") == 0


def test_a_pod_that_took_the_name_of_another_is_not_evicted(scene: Scene) -> None:
    old = scene.pod("web")
    scene.claim("mine", "gpu-0000-1b-00-0", old)
    scene.server.delete(f"{PODS}/web?gracePeriodSeconds=0")
    new = scene.pod("web")
    client = connect_client(scene.kubeconfig)

    (claim,) = claims_using(ClusterView(client), "node-a", {PciAddress.parse(FIRST)})
    gone = PodInTheWay("default", "web", old["metadata"]["uid"], None, ends=False)
    answer = evict(client, gone)

    assert claim.pods == ()
    assert answer is None
    (stored,) = scene.server.objects("pods")
    assert stored["metadata"]["uid"] == new["metadata"]["uid"]
    assert "deletionTimestamp" not in stored["metadata"]
    with pytest.raises(NotFound):
        set_cordon(client, "node-z", cordoned=True)


def test_a_running_pod_makes_room_for_partitions_on_a_cluster_with_the_driver() -> None:
    times = KubeletTimes(scan=0.1, unprepare_retry=0.3, prepare_retry=(0.5, 1.0))
    with EmbeddedCluster(times=times, start=fork_server.start) as cluster:
        driver = DriverNode.install(cluster, machine="gh200", launcher=BRISK)
        driver.start_plugin()
        driver.start_controller()
        wait_published(driver)
        make_template(cluster, "default")
        start(cluster, "default", gpu_pod("train"))
        node = cluster.nodes[0].name
        arguments = ["repartition", node, "--layout", "all-balanced", "--yes", "--timeout", "90"]

        code, output = _as_admin(driver, [*arguments, "--kubeconfig", str(cluster.admin)])

        assert code == 0, output
        assert f"{node} is uncordoned" in output
        slices = wait_published(driver)
        (gpu,) = node_gpus(slices).values()
        assert (gpu.mode, gpu.partitions) == ("static", ("1g.12gb", "1g.12gb", "2g.24gb", "3g.48gb"))
        assert "unschedulable" not in (cluster.api.get(paths.node(node)).get("spec") or {})


def _as_admin(driver: DriverNode, arguments: list[str]) -> tuple[int, str]:
    """Run gpuctl, and on the node what it says as soon as it waits for it; its exit code and output."""
    command: list[Any] = [sys.executable, "-u", "-m", "gpuctl", *arguments]
    output = ""
    with subprocess.Popen(
        command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        overdue = threading.Timer(100, process.kill)
        overdue.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                output += line
                if line.startswith("waiting: 0") and "nvidia-smi" in output:
                    run_commands(driver.machine, output)
                    output = output.replace("nvidia-smi", "done")
        finally:
            overdue.cancel()
    return process.returncode, output
