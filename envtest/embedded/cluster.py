"""A whole cluster in this process: API server, scheduler, controllers, kubelets; needs no root, no GPU."""

from __future__ import annotations

import platform
import shutil
import signal
import tempfile
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from envtest.child_processes import ChildProcesses, StartProcess, start_process
from envtest.client.api import ApiClient
from envtest.client.errors import ClusterError
from envtest.client.layout import NodeLayout, state_folder
from envtest.cluster import ContainerFacts, Mounted, PlayedPrograms
from envtest.embedded.access.certificates import self_signed
from envtest.embedded.api.container_log import ContainerLog
from envtest.embedded.api.defaults import now
from envtest.embedded.control import (
    claim_controller,
    disruption_controller,
    garbage_collector,
    kinds,
    namespace_controller,
    scheduler,
    taint_eviction,
)
from envtest.embedded.control.change_loop import Controller
from envtest.embedded.control.objects import Objects
from envtest.embedded.control.workloads.controller import EmbeddedWorkloadController
from envtest.embedded.node.container_runtime import ContainerRuntime
from envtest.embedded.node.containers import Container
from envtest.embedded.node.kubelet import EmbeddedKubelet, KubeletTimes
from envtest.embedded.server import EmbeddedApiServer

__all__ = [
    "FOLDER_PREFIX",
    "EmbeddedCluster",
    "KubeletTimes",
]

KUBERNETES = "1.37"
# Short, so that the sockets of a driver below the folder fit into a socket's address.
FOLDER_PREFIX = "k"

_LEASES = "kube-node-lease"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_CONDITIONS = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)


class EmbeddedCluster:
    """See envtest.cluster.Cluster. A context manager, whose parts run until ``close``.

    ``api_server`` is the server behind ``api``, with its faults and switches; ``kubelets`` are those of
    ``nodes``. ``times`` are the kubelets' intervals, by default those of the real one.
    """

    def __init__(
        self,
        node_count: int = 1,
        times: KubeletTimes | None = None,
        folder: Path | None = None,
        start: StartProcess = start_process,
        *,
        https: bool = False,
        kubernetes: str = KUBERNETES,
    ) -> None:
        """Start all parts. Where one cannot start, end the others and raise its error.

        ``folder`` is empty, and ``close`` removes it; a temporary one is made unless it is given. ``start``
        starts the processes of drivers. kubectl and other clients in Go send their token with ``https`` only,
        for which openssl makes a certificate. ``kubernetes`` may be 1.38: its rules for names of capacities
        are known.
        """
        self.kubernetes = kubernetes
        self.runs_programs = False
        self._times = times
        # What is started is stopped in the opposite order, here too where a later part cannot start.
        with ExitStack() as cleanup:
            self.folder = folder or Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))
            cleanup.callback(shutil.rmtree, self.folder, ignore_errors=True)
            self._layout = state_folder(self.folder)
            self._layout.logs.mkdir()
            self.nodes = tuple(self._layout.node(index) for index in range(node_count))
            for node in self.nodes:
                _make_node_folders(node)
            tls = self_signed(self._layout.pki) if https else None
            self.api_server = cleanup.enter_context(EmbeddedApiServer(tls=tls))
            self.api_server.minor = kubernetes.partition(".")[2]
            self.server = self.api_server.url
            authority = None if tls is None else tls.certificate_file
            self.api = ApiClient(self.server, authority, self.api_server.gate.admin_bearer)
            objects = Objects(self.api_server)
            for node in self.nodes:
                stored = objects.create(kinds.NODES, "", _node_object(node.name))
                objects.create(kinds.LEASES, _LEASES, _lease_of(stored))
            for part in self._control_loops():
                part.start()
                cleanup.callback(part.stop)
            changed = self.api_server.store.changed
            self._runtimes = [ContainerRuntime(node.cdi_dir, node.cgroup_dir, changed) for node in self.nodes]
            for runtime in self._runtimes:
                cleanup.callback(runtime.close)
            self.api_server.find_log = self._find_log
            self.kubelets = [self._new_kubelet(index) for index in range(node_count)]
            cleanup.callback(self._stop_kubelets)
            for kubelet in self.kubelets:
                kubelet.start()
            self.processes = ChildProcesses(self._layout, start)
            cleanup.callback(self.processes.shutdown)
            # All parts run: from here on ``close`` ends them.
            self._cleanup = cleanup.pop_all()

    def __enter__(self) -> Self:
        """The cluster itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the cluster."""
        self.close()

    def close(self) -> None:
        """End the processes, then everything else, and remove the folder."""
        self._cleanup.close()

    @property
    def admin(self) -> Path:
        """The administrator's kubeconfig."""
        return self.api_server.write_kubeconfig(self._layout.kubeconfig("admin"))

    def play(self, programs: PlayedPrograms) -> None:
        """Have the containers of all nodes play these."""
        for runtime in self._runtimes:
            runtime.programs = programs

    def service_account_kubeconfig(self, namespace: str, service_account: str, node: str) -> Path:
        """A kubeconfig with a token as a pod of a service account has it on a node. Raises ClusterError."""
        objects = Objects(self.api_server)
        account = objects.find(kinds.SERVICE_ACCOUNTS, namespace, service_account)
        home = objects.find(kinds.NODES, "", node)
        path = self._layout.kubeconfig(f"{namespace}.{service_account}.{node}")
        if account is None or home is None:
            raise ClusterError(
                f"there is no service account {namespace}/{service_account}, or no node {node}"
            )
        token = self.api_server.gate.add_account(namespace, service_account, node)
        return self.api_server.write_kubeconfig(path, token)

    def container(self, pod: str, namespace: str = "default", container: str | None = None) -> ContainerFacts:
        """What CDI put into a running container."""
        view = self._running(pod, namespace, container)[1].view
        mounts = {path: Mounted(one.host_path, one.options) for path, one in view.mounts.items()}
        return ContainerFacts(tuple(sorted(view.nodes)), dict(view.env), mounts)

    def kill_container(self, pod: str, namespace: str = "default", container: str | None = None) -> None:
        """End a running container by SIGKILL."""
        runtime, found = self._running(pod, namespace, container)
        runtime.kill_container(found)

    def _running(self, pod: str, namespace: str, container: str | None) -> tuple[ContainerRuntime, Container]:
        """A container that runs, the first of its pod unless named, and its runtime. Raises ClusterError."""
        found = Objects(self.api_server).find(kinds.PODS, namespace, pod)
        uid = "" if found is None else found["metadata"]["uid"]
        place = next(
            ((runtime, one) for runtime in self._runtimes if (one := runtime.find(uid)) is not None), None
        )
        if found is None or place is None:
            raise ClusterError(f"the pod {namespace}/{pod} does not run")
        name = container or found["spec"]["containers"][0]["name"]
        run = place[1].last(name)
        if run is None or run.end is not None:
            raise ClusterError(f"the pod {namespace}/{pod} has no container {name} that runs")
        return place[0], run

    def restart_kubelet(self, node: int, stop_signal: signal.Signals = signal.SIGTERM) -> None:
        """End a kubelet and start another one in its place; the signal makes no difference here."""
        del stop_signal
        self.kubelets[node].stop()
        self.kubelets[node] = self._new_kubelet(node)
        self.kubelets[node].start()

    def stop_api_server(self) -> None:
        """Break all connections; the cluster's own loops stop as well."""
        self.api_server.stop()

    def start_api_server(self) -> None:
        """Listen again at the same port with the same objects."""
        self.api_server.start()
        # The loops wait on the store, and have not looked at it while the server was stopped.
        self.api_server.store.notify()

    def _control_loops(self) -> list[Controller]:
        return [
            # Those of kube-controller-manager, then the scheduler.
            namespace_controller.EmbeddedNamespaceController(self.api_server),
            namespace_controller.EmbeddedServiceAccountController(self.api_server),
            garbage_collector.EmbeddedGarbageCollector(self.api_server),
            claim_controller.EmbeddedClaimController(self.api_server),
            taint_eviction.EmbeddedTaintEviction(self.api_server),
            disruption_controller.EmbeddedDisruptionController(self.api_server),
            EmbeddedWorkloadController(self.api_server),
            scheduler.EmbeddedScheduler(self.api_server),
        ]

    def _find_log(self, pod_uid: str, container: str) -> ContainerLog | None:
        found = (runtime.find_log(pod_uid, container) for runtime in self._runtimes)
        return next((log for log in found if log is not None), None)

    def _new_kubelet(self, index: int) -> EmbeddedKubelet:
        return EmbeddedKubelet(self.api_server, self.nodes[index], self._runtimes[index], self._times)

    def _stop_kubelets(self) -> None:
        for kubelet in self.kubelets:
            kubelet.stop()


def _make_node_folders(node: NodeLayout) -> None:
    for folder in (node.plugins_dir, node.registry_dir, node.cdi_dir):
        folder.mkdir(parents=True)


def _lease_of(node: dict[str, Any]) -> dict[str, Any]:
    """The lease that a kubelet holds; here nobody renews it."""
    metadata = node["metadata"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": metadata["name"], "uid": metadata["uid"]}
    renewed = metadata["creationTimestamp"].replace("Z", ".000000Z")
    spec = {"holderIdentity": metadata["name"], "leaseDurationSeconds": 40, "renewTime": renewed}
    named = {"name": metadata["name"], "ownerReferences": [owner]}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": named, "spec": spec}


def _node_object(name: str) -> dict[str, Any]:
    moment = {"lastHeartbeatTime": now(), "lastTransitionTime": now()}
    conditions = [
        {"type": kind, "status": status, **moment, "reason": reason, "message": message}
        for kind, status, reason, message in _CONDITIONS
    ]
    # Nothing is added up against this: the scheduler looks at the devices of claims only.
    room = {"cpu": "64", "memory": "256Gi", "pods": "250"}
    architecture = _ARCHITECTURES.get(platform.machine(), platform.machine())
    # Clients read all of these fields: the API requires them.
    info = {
        "machineID": uuid.uuid5(uuid.NAMESPACE_DNS, name).hex,
        "systemUUID": str(uuid.uuid5(uuid.NAMESPACE_DNS, name)),
        "bootID": str(uuid.uuid4()),
        "kernelVersion": platform.release(),
        "osImage": "Embedded",
        # It reads CDI specs as this version does.
        "containerRuntimeVersion": "containerd://2.4.0-embedded",
        "kubeletVersion": f"v{KUBERNETES}.0-embedded",
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": architecture,
    }
    addresses = [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": name}]
    labels = {
        "kubernetes.io/arch": architecture,
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
    }
    status = {"capacity": room, "allocatable": room, "conditions": conditions, "addresses": addresses}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {**status, "nodeInfo": info},
    }
