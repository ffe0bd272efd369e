"""A running cluster as an object: attaching to it, using its parts, ending it."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from envtest.client import paths
from envtest.client.api import ApiClient, Object
from envtest.client.errors import ClusterError
from envtest.client.layout import NodeLayout
from envtest.cluster import ContainerFacts, PlayedPrograms
from envtest.real import containers, control_plane, description, nodes
from envtest.real.processes import ClusterProcess, Processes
from envtest.real.render import IMAGE

_LIFETIME_SECONDS = 24 * 3600


class RealCluster:
    """A control plane and its nodes. Close it, or use it in a ``with`` statement.

    ``api`` is a client as administrator and ``server`` its URL; ``nodes`` are the folders and
    sockets of the nodes, node-0 first; ``processes`` starts and stops processes in the cluster's
    namespaces: a driver that is started there sees the mounts and process ids that the kubelet
    sees, and ends with the cluster.
    """

    has_rights = True
    runs_programs = True

    def __init__(self, described: description.Description, processes: Processes) -> None:
        """Wait for the API server of a cluster whose processes are started."""
        self._described = described
        self._closed = False
        self.processes = processes
        self.kubernetes = described.assets.kubernetes
        self.folder = described.layout.folder
        self.server = described.server
        self.nodes = described.nodes
        self.api = control_plane.wait_api_server(processes, described)

    @classmethod
    def attach(cls, folder: Path) -> Self:
        """The cluster that another process started in a folder.

        Raises:
            ClusterError: none runs there.
        """
        described = description.load(folder)
        return cls(described, Processes(described.layout, None))

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
        """End all processes and remove mounts, control groups and files; logs stay unless it is owned.

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
        return control_plane.machine_address(), self._described.slot.port(control_plane.API_SERVER)

    @property
    def admin(self) -> Path:
        """The administrator's kubeconfig."""
        return self.kubeconfig("admin")

    def kubeconfig(self, user: str) -> Path:
        """The kubeconfig of admin, controller-manager, scheduler, or a node by its name.

        Raises:
            ClusterError: there is no such user.
        """
        if user not in self._described.users:
            known = ", ".join(self._described.users)
            raise ClusterError(f"the cluster has no user {user}: choose one of {known}")
        return self._described.layout.kubeconfig(user)

    def api_as(self, token: str) -> ApiClient:
        """A client of the API server that shows this token."""
        return ApiClient(self.server, self._described.layout.authority, token)

    def mint_token(self, namespace: str, service_account: str, node: str) -> str:
        """A token of an existing service account as its pod on a node has it."""
        return mint_token(self.api, service_account, namespace, node)

    def play(self, programs: PlayedPrograms) -> None:
        """Containers run programs here."""

    def service_account_kubeconfig(self, namespace: str, service_account: str, node: str) -> Path:
        """A kubeconfig with a fresh ``mint_token``; each call writes the same file again."""
        token = self.mint_token(namespace, service_account, node)
        name = f"{namespace}.{service_account}.{node}"
        control_plane.write_kubeconfig(self._described, name, token)
        return self._described.layout.kubeconfig(name)

    def exec(
        self, pod: str, command: Sequence[str], namespace: str = "default", container: str | None = None
    ) -> str:
        """Run a command in a running container (the first unless named) and return its stdout.

        Raises:
            CommandFailed: the command ended with an error, or could not be started.
            ClusterError: the container does not run, or the command did not end in time.
        """
        node, identity = self._find_container(pod, namespace, container)
        return containers.run_in_container(self._described.assets, node, identity, command)

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
        containers.kill_container(self._described.assets, *self._find_container(pod, namespace, container))

    def tag_image(self, image: str, name: str) -> None:
        """Give an image that all nodes have another name beside its own.

        Raises:
            CommandFailed: a node has no such image.
        """
        for node in self.nodes:
            nodes.tag_image(self._described, node, image, name)

    def import_image(self, archive: Path) -> None:
        """Load the images of a docker or OCI archive into every node; pods name them as the archive does.

        Raises:
            NotReady: a node did not take it in time.
        """
        for node in self.nodes:
            nodes.import_image(self.processes, self._described, node, archive)

    def kubelet(self, node: int) -> ClusterProcess:
        """The kubelet of a node, to be stopped, killed or read."""
        return self.processes.named(nodes.kubelet_name(self.nodes[node]))

    def start_kubelet(self, node: int) -> None:
        """Start a stopped kubelet and wait until it serves and its node is Ready."""
        nodes.start_kubelet(self.processes, self._described, self.nodes[node])
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
        nodes.start_containerd(self.processes, self._described, self.nodes[node])

    def stop_api_server(self) -> None:
        """Kill the API server: connections break, and nobody answers at its port any more."""
        self.processes.named(control_plane.API_SERVER).kill()

    def start_api_server(self) -> None:
        """Start the stopped API server at the same port with the same objects; wait until ready."""
        control_plane.start_api_server(self.processes, self._described)
        control_plane.wait_api_server(self.processes, self._described)

    def audit_events(self) -> list[Object]:
        """The audit log so far: an Event of audit.k8s.io/v1 for each request.

        Raises:
            ClusterError: the cluster was started without audit.
        """
        if not self._described.audit:
            raise ClusterError("the API server notes nothing: start the cluster with audit=True")
        return [json.loads(line) for line in self.processes.log("audit").splitlines()]


def holder_pod(service_account: str, namespace: str, node: str) -> dict[str, Any]:
    """A pod on a node for tokens to be bound to: they are valid as long as it is there."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{service_account}-{node}", "namespace": namespace},
        "spec": {
            "nodeName": node,
            "serviceAccountName": service_account,
            "automountServiceAccountToken": False,
            # Its command, sleep, ignores SIGTERM as process 1 of the container; a grace would only delay the
            # end.
            "terminationGracePeriodSeconds": 0,
            # No taint of the node evicts it.
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "holder", "image": IMAGE, "imagePullPolicy": "Never"}],
        },
    }


def mint_token(api: ApiClient, service_account: str, namespace: str, node: str) -> str:
    """A token of an existing service account, bound to a pod on a node; makes the pod if need be.

    The API server writes the name of a pod's node into a token that is bound to the pod (KEP-4193). The
    driver's rights depend on it: the policy for ResourceSlices, and the verbs ``associated-node:*`` for the
    status of claims.

    ``api`` must be an administrator's. The token is good for a day at most.
    """
    pod = api.apply(holder_pod(service_account, namespace, node))[0]
    # A token that is bound to a pod ends with the pod, and names its node.
    bound_to = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": pod["metadata"]["name"],
        "uid": pod["metadata"]["uid"],
    }
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"boundObjectRef": bound_to, "expirationSeconds": _LIFETIME_SECONDS},
    }
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token"
    return str(api.request("POST", path, request)["status"]["token"])
