"""A whole cluster in this process: API server, scheduler, controllers, kubelets; needs no root, no GPU."""

from __future__ import annotations

import shutil
import signal
import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from driver.devices.names import DRIVER_NAME
from driver.process.sockets import checked_socket_path, registration_socket, service_socket_name
from envtest.client.api import ApiClient
from envtest.client.errors import ClusterError, ClusterFault
from envtest.client.layout import ClusterLayout, NodeLayout
from envtest.cluster import DRIVER_NAMESPACE, ContainerFacts, Mounted
from envtest.embedded.api import unforeseen
from envtest.embedded.api.container_log import ContainerLog
from envtest.embedded.api.defaults import now
from envtest.embedded.api.server import EmbeddedApiServer
from envtest.embedded.control.claim_controller import EmbeddedClaimController
from envtest.embedded.control.disruption_controller import EmbeddedDisruptionController
from envtest.embedded.control.namespace_controller import (
    EmbeddedNamespaceController,
    EmbeddedServiceAccountController,
)
from envtest.embedded.control.objects import NAMESPACES, NODES, PODS, Objects
from envtest.embedded.control.scheduler import EmbeddedScheduler
from envtest.embedded.control.taint_eviction import EmbeddedTaintEviction
from envtest.embedded.control.workloads.controller import EmbeddedWorkloadController
from envtest.embedded.node.child_processes import ChildProcesses, StartProcess, start_process
from envtest.embedded.node.container_runtime import ContainerRuntime
from envtest.embedded.node.containers import Container
from envtest.embedded.node.kubelet import EmbeddedKubelet, KubeletTimes

KUBERNETES = "1.37"
FOLDER_PREFIX = "k"


class Part(Protocol):
    """A loop of the cluster."""

    def start(self) -> None:
        """Run in threads of its own."""

    def stop(self) -> None:
        """End them."""


class EmbeddedCluster:
    """See envtest.cluster.Cluster; a context manager. Everything runs from its making to ``close``.

    ``api_server`` is the server behind ``api``, with its faults and switches; ``kubelets`` are those of
    ``nodes``. ``times`` are the kubelets' intervals, by default those of the real one.
    """

    has_rights = False

    def __init__(
        self,
        node_count: int = 1,
        times: KubeletTimes | None = None,
        folder: Path | None = None,
        start: StartProcess = start_process,
    ) -> None:
        """Start all parts; raises what a part raises, and leaves nothing then.

        ``folder`` is an empty one, which ``close`` removes; without it one is made. ``start`` starts the
        processes of drivers.
        """
        self.kubernetes = KUBERNETES
        self._times = times
        with ExitStack() as cleanup:
            self.folder = folder or Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))
            cleanup.callback(shutil.rmtree, self.folder, ignore_errors=True)
            self._layout = ClusterLayout(self.folder)
            self._layout.logs.mkdir()
            self.nodes = tuple(self._layout.node(index) for index in range(node_count))
            for node in self.nodes:
                _make_node_folders(node)
            self.api_server = cleanup.enter_context(EmbeddedApiServer())
            self.server = self.api_server.url
            self.api = ApiClient(self.server, None, "embedded")
            self._make_objects()
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
            self._cleanup = cleanup.pop_all()

    def __enter__(self) -> Self:
        """The cluster itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the cluster; raises ClusterFault where a part of it failed and nobody has asked for that."""
        self.close()
        faults = unforeseen.take()
        if faults and error is None:
            listed = "; ".join(f"{one.doing}: {type(one.error).__name__}: {one.error}" for one in faults)
            raise ClusterFault(f"the embedded cluster failed at itself, which is a fault of it: {listed}")

    def close(self) -> None:
        """End the processes, then everything else, and remove the folder."""
        self._cleanup.close()

    @property
    def admin(self) -> Path:
        """The administrator's kubeconfig."""
        return self.api_server.write_kubeconfig(self._layout.kubeconfig("admin"))

    def service_account_kubeconfig(
        self, service_account: str, node: str, namespace: str = DRIVER_NAMESPACE
    ) -> Path:
        """A kubeconfig for a service account's pod; here everybody may do everything."""
        name = f"{namespace}.{service_account}.{node}"
        return self.api_server.write_kubeconfig(self._layout.kubeconfig(name))

    def container(self, pod: str, namespace: str = "default", container: str | None = None) -> ContainerFacts:
        """What CDI put into a running container."""
        view = self._running(pod, namespace, container)[1].view
        mounts = {path: Mounted(one.host_path, one.options) for path, one in view.mounts.items()}
        return ContainerFacts(tuple(sorted(view.nodes)), dict(view.env), mounts)

    def cgroup(self, pod: str, namespace: str = "default", container: str | None = None) -> str:
        """The control group of a running container, below the root of the groups."""
        return self._running(pod, namespace, container)[1].cgroup

    def kill_container(self, pod: str, namespace: str = "default", container: str | None = None) -> None:
        """End a running container by SIGKILL."""
        runtime, found = self._running(pod, namespace, container)
        runtime.kill_container(found)

    def _running(self, pod: str, namespace: str, container: str | None) -> tuple[ContainerRuntime, Container]:
        """A container that runs, the first of its pod unless named, and its runtime. Raises ClusterError."""
        found = Objects(self.api_server).find(PODS, namespace, pod)
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
        """End a kubelet and start another one in its place; no signal makes a difference here."""
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
        self.api_server.store.notify()

    def log(self, process: str) -> str:
        """The log of a process of the driver."""
        return self.processes.log(process)

    def _control_loops(self) -> list[Part]:
        return [
            EmbeddedNamespaceController(self.api_server),
            EmbeddedServiceAccountController(self.api_server),
            EmbeddedClaimController(self.api_server),
            EmbeddedTaintEviction(self.api_server),
            EmbeddedDisruptionController(self.api_server),
            EmbeddedWorkloadController(self.api_server),
            EmbeddedScheduler(self.api_server),
        ]

    def _find_log(self, pod_uid: str, container: str) -> ContainerLog | None:
        found = (runtime.find_log(pod_uid, container) for runtime in self._runtimes)
        return next((log for log in found if log is not None), None)

    def _new_kubelet(self, index: int) -> EmbeddedKubelet:
        return EmbeddedKubelet(self.api_server, self.nodes[index], self._runtimes[index], self._times)

    def _stop_kubelets(self) -> None:
        for kubelet in self.kubelets:
            kubelet.stop()

    def _make_objects(self) -> None:
        """The namespaces and nodes that every cluster has."""
        objects = Objects(self.api_server)
        for name in ("default", "kube-system"):
            if objects.find(NAMESPACES, "", name) is None:
                namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
                objects.create(NAMESPACES, "", namespace)
        for node in self.nodes:
            objects.create(NODES, "", _node_object(node.name))


def _make_node_folders(node: NodeLayout) -> None:
    """Raises ConfigError where the sockets of a driver would not fit below the folder."""
    registration_socket(node.registry_dir, DRIVER_NAME)
    checked_socket_path(node.plugins_dir / DRIVER_NAME / service_socket_name())
    for folder in (node.plugins_dir, node.registry_dir, node.cdi_dir):
        folder.mkdir(parents=True)


def _node_object(name: str) -> dict[str, object]:
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "kubelet is posting ready status",
        "lastTransitionTime": now(),
        "lastHeartbeatTime": now(),
    }
    room = {"cpu": "64", "memory": "256Gi", "pods": "250"}
    info = {"kubeletVersion": f"v{KUBERNETES}.0-embedded", "containerRuntimeVersion": "embedded://1"}
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"conditions": [ready], "capacity": room, "allocatable": room, "nodeInfo": info},
    }
