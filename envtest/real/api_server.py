"""etcd and kube-apiserver: no controllers, no scheduler, no kubelet. Any user may start them.

Nobody changes what a client has written. So a namespace gets no service account and stays when it is deleted,
the roles ``edit`` and ``view`` have no rights, since a controller would fill them, and there is no node.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from envtest.child_processes import ChildProcesses, start_process
from envtest.client.api import ApiClient, Object
from envtest.client.errors import ClusterError
from envtest.client.layout import state_folder
from envtest.cluster import Processes
from envtest.real import control_plane
from envtest.real.assets import Assets
from envtest.real.control_plane import Description
from envtest.real.render import IMAGE
from envtest.real.slots import take_slot

# Short, so that sockets of a driver with a pod's UID in their names fit below it.
FOLDER_PREFIX = "k"
_LIFETIME_SECONDS = 24 * 3600


class RealApiServer:
    """A running API server. ``api`` is a client as administrator, and ``server`` its URL.

    ``described`` has the numbers and folders that it uses.
    """

    def __init__(self, described: Description, processes: Processes) -> None:
        """Wait for the API server whose processes are started."""
        self.described = described
        self.processes = processes
        self.kubernetes = described.assets.kubernetes
        self.folder = described.layout.folder
        self.server = described.server
        self.api = control_plane.wait_api_server(processes, described)

    @property
    def admin(self) -> Path:
        """The administrator's kubeconfig."""
        return self.described.layout.kubeconfig("admin")

    @property
    def admin_token(self) -> str:
        """The administrator's bearer token."""
        return self.described.users["admin"].token

    def api_as(self, token: str) -> ApiClient:
        """A client of the API server that shows this token."""
        return ApiClient(self.server, self.described.layout.authority, token)

    def mint_token(self, namespace: str, service_account: str, node: str) -> str:
        """A token of an existing service account as its pod on a node has it."""
        return mint_token(self.api, namespace, service_account, node)

    def service_account_kubeconfig(self, namespace: str, service_account: str, node: str) -> Path:
        """A kubeconfig with a fresh ``mint_token``; each call writes the same file again."""
        token = self.mint_token(namespace, service_account, node)
        name = f"{namespace}.{service_account}.{node}"
        control_plane.write_kubeconfig(self.described, name, token)
        return self.described.layout.kubeconfig(name)

    def stop_api_server(self) -> None:
        """Kill the API server: connections break, and nobody answers at its port any more."""
        self.processes.named(control_plane.API_SERVER).kill()

    def start_api_server(self) -> None:
        """Start the stopped API server at the same port with the same objects; wait until ready."""
        control_plane.start_api_server(self.processes, self.described)
        control_plane.wait_api_server(self.processes, self.described)

    def audit_events(self) -> list[Object]:
        """The audit log so far: an Event of audit.k8s.io/v1 for each request.

        Raises:
            ClusterError: it was started without audit.
        """
        if not self.described.audit:
            raise ClusterError("the API server notes nothing: start the cluster with audit=True")
        lines = self.described.layout.log("audit").read_text().splitlines()
        return [json.loads(line) for line in lines]


@contextmanager
def api_server_alone(assets: Assets) -> Iterator[RealApiServer]:
    """Start etcd and kube-apiserver, and end them with the block, or with this process.

    Raises:
        NotReady: one of them did not come up; the message has the end of its log.
        ClusterError: a program cannot be started, or no slot is free.
    """
    with ExitStack() as cleanup:
        folder = cleanup.enter_context(tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX))
        layout = state_folder(Path(folder))
        layout.logs.mkdir()
        slot, slot_lock = take_slot()
        cleanup.callback(os.close, slot_lock)
        processes = ChildProcesses(layout, _start_bound)
        cleanup.callback(processes.shutdown)
        users = control_plane.make_users(node_count=0)
        described = Description(layout, slot, assets, users, node_count=0, audit=False)
        control_plane.write_files(described)
        control_plane.start_etcd(processes, described)
        control_plane.start_api_server(processes, described)
        # Asked to end, it would wait for its own watches.
        cleanup.callback(processes.named(control_plane.API_SERVER).kill)
        yield RealApiServer(described, processes)


def _start_bound(
    command: Sequence[str], environment: Mapping[str, str], output: int
) -> subprocess.Popen[bytes]:
    """Start a process that the kernel kills when this one ends, however that happens."""
    return start_process(["setpriv", "--pdeathsig", "KILL", *command], environment, output)


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


def mint_token(api: ApiClient, namespace: str, service_account: str, node: str) -> str:
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
