"""A running cluster as an object: attaching to it, using its parts, ending it."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from envtest.client import paths
from envtest.client.layout import NodeLayout
from envtest.cluster import ContainerFacts, PlayedPrograms
from envtest.real import containers, control_plane, nodes
from envtest.real.api_server import RealApiServer
from envtest.real.control_plane import Description
from envtest.real.processes import ClusterProcess, Processes


class RealCluster(RealApiServer):
    """A control plane and its nodes. Close it, or use it in a ``with`` statement.

    ``nodes`` are the folders and sockets of the nodes, node-0 first; ``processes`` starts and stops
    processes in the cluster's namespaces: a driver that is started there sees the mounts and process ids
    that the kubelet sees, and ends with the cluster.
    """

    runs_programs = True

    def __init__(self, described: Description, processes: Processes) -> None:
        """Wait for the API server of a cluster whose processes are started."""
        super().__init__(described, processes)
        self._closed = False
        self.processes: Processes = processes
        self.nodes = described.nodes

    def __enter__(self) -> Self:
        """The cluster itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the cluster."""
        self.close()

    def close(self) -> None:
        """End all processes and remove mounts, control groups and files.

        A closed cluster may be closed again.

        Raises:
            ClusterError: something could not be removed.
        """
        if not self._closed:
            self._closed = True
            self.processes.shutdown()

    @property
    def pods_see_server_at(self) -> tuple[str, int]:
        """Address and port at which pods reach the API server.

        There is no kube-proxy, so the address of its Service, which pods have in KUBERNETES_SERVICE_HOST,
        leads nowhere.
        """
        return control_plane.machine_address(), self.described.slot.port(control_plane.API_SERVER)

    def play(self, programs: PlayedPrograms) -> None:
        """Containers run programs here."""

    def exec(
        self, pod: str, command: Sequence[str], namespace: str = "default", container: str | None = None
    ) -> str:
        """Run a command in a running container (the first unless named) and return its stdout.

        Raises:
            CommandFailed: the command ended with an error, or could not be started.
            ClusterError: the container does not run, or the command did not end in time.
        """
        node, identity = self._find_container(pod, namespace, container)
        return containers.run_in_container(self.described.assets, node, identity, command)

    def _find_container(self, pod: str, namespace: str, container: str | None) -> tuple[NodeLayout, str]:
        """The node of a container, and the runtime's id of it. Raises ClusterError."""
        found = self.api.get(paths.pod(pod, namespace))
        identity = containers.container_id(found, container)
        return next(node for node in self.nodes if node.name == found["spec"]["nodeName"]), identity

    def container(self, pod: str, namespace: str = "default", container: str | None = None) -> ContainerFacts:
        """What a running container finds inside, seen from inside.

        Raises:
            CommandFailed: something cannot be looked at.
            ClusterError: the container does not run.
        """
        return containers.facts(self.exec(pod, containers.LOOK, namespace, container))

    def kill_container(self, pod: str, namespace: str = "default", container: str | None = None) -> None:
        """End a running container by SIGKILL.

        Raises:
            CommandFailed: it could not be ended.
            ClusterError: the container was never started.
        """
        containers.kill_container(self.described.assets, *self._find_container(pod, namespace, container))

    def tag_image(self, image: str, name: str) -> None:
        """Give an image that all nodes have another name beside its own.

        Raises:
            CommandFailed: a node has no such image.
        """
        for node in self.nodes:
            nodes.tag_image(self.described, node, image, name)

    def import_image(self, archive: Path) -> None:
        """Load the images of a docker or OCI archive into every node; pods name them as the archive does.

        Raises:
            NotReady: a node did not take it in time.
        """
        for node in self.nodes:
            nodes.import_image(self.processes, self.described, node, archive)

    def kubelet(self, node: int) -> ClusterProcess:
        """The kubelet of a node, to be stopped, killed or read."""
        return self.processes.named(nodes.kubelet_name(self.nodes[node]))

    def start_kubelet(self, node: int) -> None:
        """Start a stopped kubelet and wait until it serves and its node is Ready."""
        nodes.start_kubelet(self.processes, self.described, self.nodes[node])
        nodes.wait_kubelet(self.processes, self.api, self.nodes[node])

    def restart_kubelet(self, node: int, stop_signal: signal.Signals = signal.SIGTERM) -> None:
        """End a kubelet with a signal (SIGKILL for a crash) and start it again.

        The kubelet deletes the ResourceSlices of its node at every start.
        """
        kubelet = self.kubelet(node)
        kubelet.send(stop_signal)
        kubelet.wait()
        self.start_kubelet(node)

    def containerd(self, node: int) -> ClusterProcess:
        """The containerd of a node; containers run on without it."""
        return self.processes.named(nodes.containerd_name(self.nodes[node]))

    def start_containerd(self, node: int) -> None:
        """Start a containerd that ended."""
        nodes.start_containerd(self.processes, self.described, self.nodes[node])
