"""The driver installed by helm on all nodes of a real cluster, with a pod of every tier on each node."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.installed_node import InstalledNode, values
from tests.cluster.objects import run_pod, sleeper
from tests.clusters import (
    DRIVER_NAMESPACE,
    Object,
    RealCluster,
    find_assets,
    paths,
    wait_for,
    wait_for_list,
    wait_gone,
)
from tests.eventually import eventually
from tests.flow.claims import gpu_pod, request, wait_running
from tests.flow.mig_scene import end, pod_of, template
from tools.testbed.chart import CHART, NAMESPACE, RELEASE, helm_in

TAGS = ("test", "next")
"""Two tags of one image."""

RULES: list[Object] = [
    {"when": "gpu.index == 1", "mig": {"dynamic": {"profiles": ["1g"]}}},
    {"when": "gpu.index == 2", "shared": {"strategy": "TimeSlicing", "shares": 4}},
    {"when": "gpu.index == 3", "shared": {"strategy": "MPS", "shares": 4}},
    {"offer": "whole"},
]
CLASSES = {
    "whole": "gpu.nvidia.com",
    "dynamic": "mig.nvidia.com",
    "time-sliced": "shared-timesliced",
    "mps": "shared-mps",
}
TIERS = (*CLASSES, "extended")
"""What a pod asks for; ``extended`` is a GPU by the name nvidia.com/gpu in its limits."""

SETS = ("gpu-dra-controller", "gpu-dra-kubeletplugin", "gpu-dra-mps")
_SECONDS = 120.0


class Installation:
    """A release on a cluster. ``nodes`` show what it does to them, ``namespace`` is that of the pods."""

    def __init__(self, cluster: RealCluster, namespace: str, image: Path, program: str = "helm3") -> None:
        """Give the nodes GPUs and the image, under both tags; ``program`` is to install it: helm3, helm4."""
        self._program = program
        self.cluster = cluster
        self.namespace = namespace
        self.nodes = [InstalledNode.build(node, number) for number, node in enumerate(cluster.nodes)]
        cluster.import_image(image)
        cluster.tag_image(*(f"localhost/gpu-dra:{tag}" for tag in TAGS))
        cluster.api.apply(NAMESPACE)
        for name, device_class in CLASSES.items():
            template(cluster, namespace, name, request(device_class=device_class))

    def install(self) -> None:
        """Install the release and wait until all of it is ready."""
        self._helm("install", TAGS[0])
        self.wait_published()

    def upgrade(self) -> None:
        """Upgrade to the other tag, and wait until all pods are new."""
        self._helm("upgrade", TAGS[1])

    def roll_back(self) -> None:
        """Take the release back to the revision before."""
        self._run("rollback", RELEASE)

    def uninstall(self) -> None:
        """Uninstall, and wait for the end of the pods whose DaemonSets helm deleted. Raises HelmRefused."""
        self._run("uninstall", RELEASE)
        wait_for_list(self.cluster.api, paths.pod(namespace=DRIVER_NAMESPACE), lambda pods: not pods)

    def _helm(self, verb: str, tag: str) -> None:
        given = values(*self.cluster.pods_see_server_at, tag)
        given |= {"nodeConfig": {"rules": RULES}, "optInClasses": {"gpu": True}}
        self._run(verb, RELEASE, str(CHART), values=given)

    def _run(self, *words: str, values: Object | None = None) -> None:
        wait = ("--wait", f"--timeout={_SECONDS:.0f}s")
        helm_in(self.cluster, *words, *wait, program=self._program, values=values)

    def wait_published(self) -> None:
        """Wait until every node has its devices of every tier in slices."""

        def published() -> set[tuple[str, str]]:
            return {
                (one["spec"]["nodeName"], device["attributes"]["type"]["string"])
                for one in self.slices()
                for device in one["spec"].get("devices") or ()
                if not device.get("taints")
            }

        wanted = {(node.node.name, kind) for node in self.nodes for kind in ("gpu", "mig", "shared")}
        eventually(f"untainted {wanted}", published, lambda kinds: wanted <= kinds)

    def configure(self, config: Object) -> None:
        """Write a node configuration into the ConfigMap, as an admin may."""
        path = f"/api/v1/namespaces/{DRIVER_NAMESPACE}/configmaps/gpu-dra-node-config"
        self.cluster.api.patch(path, {"data": {"config.yaml": json.dumps(config)}})

    def wait_kinds(self, kinds: set[str]) -> None:
        """Wait until slices have devices of these kinds alone, without taints; the kubelet takes its time."""

        def published(slices: list[Object]) -> bool:
            devices = [one for held in slices for one in held["spec"].get("devices") or ()]
            found = {one["attributes"]["type"]["string"] for one in devices}
            return found == kinds and not any(one.get("taints") for one in devices)

        wait_for_list(self.cluster.api, paths.resource_slice(), published, _SECONDS)

    def wait_taints(self, start: str, keys: set[str]) -> None:
        """Wait until the devices whose names begin so have these taints and no others."""

        def tainted(slices: list[Object]) -> bool:
            found = [
                {taint["key"] for taint in device.get("taints") or ()}
                for one in slices
                for device in one["spec"].get("devices") or ()
                if device["name"].startswith(start)
            ]
            return bool(found) and all(one == keys for one in found)

        wait_for_list(self.cluster.api, paths.resource_slice(), tainted, _SECONDS)

    def slices(self) -> list[Object]:
        """All slices of the cluster."""
        return self.cluster.api.list_objects(paths.resource_slice())

    def doctor(self, node: str) -> list[Object]:
        """What ``gpuctl doctor NODE`` finds, by kubectl exec in the plugin's pod of the node as well."""
        ran = self.gpuctl("doctor", node, "-o", "json")
        assert ran.returncode in (0, 1), ran.stderr
        results: list[Object] = json.loads(ran.stdout)["results"]
        return results

    def top(self) -> Object:
        """What ``gpuctl top`` tells, with the metrics of the plugins' pods through the API server."""
        ran = self.gpuctl("top", "-o", "json")
        assert ran.returncode == 0, ran.stderr
        found: Object = json.loads(ran.stdout)
        return found

    def gpuctl(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run gpuctl as an admin who has the cluster's kubectl."""
        kubectl = find_assets(self.cluster.kubernetes).binary("kubectl")
        return subprocess.run(
            [sys.executable, "-m", "gpuctl", *words, "--kubeconfig", str(self.cluster.admin)],
            env={**os.environ, "PATH": f"{kubectl.parent}:{os.environ['PATH']}"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    def start(self, prefix: str, tiers: Sequence[str] = TIERS) -> list[str]:
        """Start a pod of each tier on each node and wait until all run; their names."""
        pods = {
            f"{prefix}-{tier}-{node.node.name}": (tier, node.node.name)
            for node in self.nodes
            for tier in tiers
        }
        for name, (tier, node) in pods.items():
            self.cluster.api.create(on_node(pod_of_tier(name, tier), node), self.namespace)
        for name in pods:
            wait_running(self.cluster, self.namespace, name, timeout_seconds=_SECONDS)
        return list(pods)

    def end(self, pods: Sequence[str]) -> None:
        """Delete pods and wait until they are gone."""
        end(self.cluster, self.namespace, *pods)

    def containers(self, pods: Sequence[str]) -> dict[str, tuple[str, str, int]]:
        """Of each pod its phase, its container's id, and how often that was started again."""
        found = {}
        for pod in pods:
            status = self.cluster.api.get(paths.pod(pod, self.namespace))["status"]
            (container,) = status["containerStatuses"]
            found[pod] = status["phase"], container["containerID"], container["restartCount"]
        return found

    def driver_pods(self) -> dict[str, set[str]]:
        """The UIDs of the pods of each of the driver's DaemonSets."""
        found: dict[str, set[str]] = {name: set() for name in SETS}
        for pod in self.cluster.api.list_objects(paths.pod(namespace=DRIVER_NAMESPACE)):
            name = pod["metadata"].get("labels", {}).get("app.kubernetes.io/name")
            if name in found:
                found[name].add(pod["metadata"]["uid"])
        return found

    def open_slow_connections(self, number: int = 50) -> None:
        """Have a pod without rights hold so many connections to each port of each driver pod, for ever."""
        pods = self.cluster.api.list_objects(paths.pod(namespace=DRIVER_NAMESPACE))
        targets = [
            f"{pod['status']['podIP']} {port['containerPort']}"
            for pod in pods
            for container in pod["spec"]["containers"]
            for port in container["ports"]
        ]
        again = "(printf 'GET / HTTP/1.1\\r\\nX: '; sleep 5) | nc $target"
        script = (
            f"for target in {' '.join(map(repr, targets))}; do for one in $(seq {number}); do "
            f"while :; do {again}; done >/dev/null 2>&1 & done; done; wait"
        )
        attacker = sleeper("attacker")
        attacker["spec"]["containers"][0]["command"] = ["sh", "-c", script]
        run_pod(self.cluster, self.namespace, attacker)

    def probes(self, result: str) -> int:
        """How many probes of the driver's containers had this result, as the kubelets count them."""
        counted = re.compile(
            rf'^prober_probe_total{{.*namespace="{DRIVER_NAMESPACE}".*result="{result}".*}} (\d+)',
            re.MULTILINE,
        )
        texts = (
            self.cluster.api.text(f"{paths.node(one.node.name)}/proxy/metrics/probes") for one in self.nodes
        )
        return sum(int(number) for text in texts for number in counted.findall(text))

    def driver_containers(self) -> list[tuple[str, int, bool]]:
        """The driver's containers by their pods: how often each was started anew, and whether it is ready."""
        return sorted(
            (pod["metadata"]["name"], container["restartCount"], container["ready"])
            for pod in self.cluster.api.list_objects(paths.pod(namespace=DRIVER_NAMESPACE))
            for container in pod["status"]["containerStatuses"]
        )

    def daemons(self) -> list[dict[str, int]]:
        """The process ids of each node's MPS daemons."""
        return [node.daemons() for node in self.nodes]

    def failed_prepares(self) -> list[str]:
        """What the kubelets and the plugins told of prepares that failed: to wait for a pod's end is none."""
        reasons = {"FailedPrepareDynamicResources", "PrepareFailed", "UnprepareFailed"}
        events = self.cluster.api.list_objects(paths.event(namespace=self.namespace))
        return [event["message"] for event in events if event["reason"] in reasons]

    def slice_writes(self) -> list[Object]:
        """Each time that a slice was created, changed or deleted so far, by anybody (audit.k8s.io/v1)."""
        return [
            event
            for event in self.cluster.audit_events()
            if event.get("objectRef", {}).get("resource") == "resourceslices"
            and event["verb"] not in ("get", "list", "watch")
        ]

    def changes_since(self, writes: list[Object], slices: list[Object]) -> list[str]:
        """What was written after these writes, when the slices were so: who did it, and what it changed."""
        told = {one["metadata"]["name"]: _told(one) for one in slices}
        lines = []
        for event in self.slice_writes()[len(writes) :]:
            name = event["objectRef"].get("name", "")
            now = _told(event.get("requestObject") or {})
            before, told[name] = told.get(name, frozenset()), now
            who = f"{event['requestReceivedTimestamp']} {event['user']['username']} {event['verb']} {name}"
            lines += [who, *(f"- {one}" for one in before - now), *(f"+ {one}" for one in now - before)]
        return lines

    @contextmanager
    def churn(self) -> Iterator[Callable[[], int]]:
        """Let pods come and go on every node meanwhile; gives a function that tells how many have run."""
        ran, stop = [0], threading.Event()
        failures: list[BaseException] = []

        def come_and_go(node: str) -> None:
            number = 0
            while not stop.is_set():
                number += 1
                for tier in ("whole", "time-sliced"):
                    name = f"churn-{tier}-{node}-{number}"
                    try:
                        self.cluster.api.create(on_node(pod_of_tier(name, tier), node), self.namespace)
                        wait_running(self.cluster, self.namespace, name, timeout_seconds=_SECONDS)
                        self.cluster.api.delete(paths.pod(name, self.namespace))
                        wait_gone(self.cluster.api, paths.pod(name, self.namespace))
                    except BaseException as error:
                        failures.append(error)
                        raise
                    ran[0] += 1

        threads = [threading.Thread(target=come_and_go, args=(node.node.name,)) for node in self.nodes]
        for thread in threads:
            thread.start()
        try:
            yield lambda: ran[0]
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert not failures, failures


def on_node(pod: Object, node: str) -> Object:
    """The pod, to be placed on this node by the scheduler."""
    pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    return pod


def pod_of_tier(name: str, tier: str) -> Object:
    """A pod that asks for a device of a tier."""
    if tier != "extended":
        return pod_of(name, tier)
    pod = gpu_pod(name)
    del pod["spec"]["resourceClaims"]
    for container in pod["spec"]["containers"]:
        container["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    return pod


def wait_job_said(cluster: RealCluster) -> str:
    """What the uninstallation said that failed."""
    job = wait_for(
        cluster.api,
        f"/apis/batch/v1/namespaces/{DRIVER_NAMESPACE}/jobs/gpu-dra-uninstall",
        lambda stored: bool(stored.get("status", {}).get("failed")),
    )
    (pod,) = [
        pod
        for pod in cluster.api.list_objects(paths.pod(namespace=DRIVER_NAMESPACE))
        if pod["metadata"].get("ownerReferences", [{}])[0].get("uid") == job["metadata"]["uid"]
    ]
    (container,) = pod["status"]["containerStatuses"]
    return str(container["state"]["terminated"]["message"])


def _told(stored: Object) -> frozenset[str]:
    """A line for each device of a slice, and one for all else of it."""
    spec = dict(stored.get("spec", {}))
    devices = spec.pop("devices", ())
    return frozenset(json.dumps(one, sort_keys=True) for one in (*devices, spec))
