"""Brings up etcd, the API server, the controller manager and the scheduler of a cluster."""

from __future__ import annotations

import secrets
import socket
import ssl
import subprocess
from dataclasses import dataclass

from envtest.client.api import ApiClient
from envtest.client.errors import ApiRefused, ClusterError
from envtest.client.layout import ClusterLayout, NodeLayout
from envtest.client.waiting import wait_until
from envtest.cluster import Processes
from envtest.real import commands, render
from envtest.real.assets import Assets
from envtest.real.slots import Slot

_ETCD = "etcd"
API_SERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"
# The first address of SERVICE_ADDRESSES: the one of the Service kubernetes, which pods are given.
_SERVICE_ADDRESS = "10.96.0.1"
# The API server accepts connections long before it answers on them, and it is slow while the clients of many
# nodes come back.
_PROBE_SECONDS = 5.0

_LOOPBACK = "127.0.0.1"
# An address for documentation (RFC 5737): nothing is sent there, the kernel only looks up the route.
_SOMEWHERE = ("203.0.113.1", 9)


@dataclass(frozen=True, slots=True)
class Description:
    """The fixed properties of a cluster.

    ``users`` are by the names of their kubeconfigs; ``audit`` says whether the API server writes an
    audit log. ``gates`` are the feature gates of the control plane that are turned on.
    """

    layout: ClusterLayout
    slot: Slot
    assets: Assets
    users: dict[str, render.User]
    node_count: int
    audit: bool
    gates: tuple[str, ...] = ()

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return f"https://127.0.0.1:{self.slot.port('kube-apiserver')}"

    @property
    def nodes(self) -> tuple[NodeLayout, ...]:
        """The folders of the nodes."""
        return tuple(self.layout.node(index) for index in range(self.node_count))


def make_users(node_count: int) -> dict[str, render.User]:
    """The users of a cluster by the names of their kubeconfigs, each with a fresh token."""

    def user(name: str, group: str = "") -> render.User:
        return render.User(name, secrets.token_hex(16), group)

    return {
        "admin": user("admin", "system:masters"),
        "controller-manager": user("system:kube-controller-manager"),
        "scheduler": user("system:kube-scheduler"),
        # The user name and group of a kubelet, by which the node authorizer knows its node.
        **{f"node-{i}": user(f"system:node:node-{i}", "system:nodes") for i in range(node_count)},
    }


def write_files(description: Description) -> None:
    """Write what the control plane reads: keys, kubeconfigs and configuration."""
    layout = description.layout
    # With this mode from the beginning: the tokens are never readable for others.
    layout.tokens.touch(mode=0o600)
    layout.tokens.write_text(render.tokens_csv(description.users))
    for name, user in description.users.items():
        write_kubeconfig(description, name, user.token)
    (layout.folder / "audit-policy.json").write_text(render.audit_policy())
    scheduler = render.scheduler_configuration(layout.kubeconfig("scheduler"))
    (layout.folder / "scheduler.json").write_text(scheduler)
    # The API server reads keys of elliptic curves in the SEC1 form only.
    key = ["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "service-accounts.key"]
    _run_openssl(key, layout)
    # The API server shows this self-signed certificate to kubelets, which trust it as an authority.
    curve = ["-pkeyopt", "ec_paramgen_curve:prime256v1"]
    certificate = ["req", "-x509", "-newkey", "ec", *curve, "-nodes", "-days", "3650"]
    files = ["-keyout", "kubelet-client.key", "-out", "kubelet-client.crt"]
    use = ["-subj", "/CN=kube-apiserver", "-addext", "extendedKeyUsage=clientAuth"]
    _run_openssl([*certificate, *files, *use], layout)
    layout.pki.mkdir()
    files = ["-keyout", "pki/apiserver.key", "-out", "pki/apiserver.crt"]
    # The names and addresses at which clients check the certificate.
    names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
    known = [f"DNS:{name}" for name in names]
    known += [f"IP:{ip}" for ip in sorted({_LOOPBACK, _SERVICE_ADDRESS, machine_address()})]
    use = ["-subj", "/CN=kube-apiserver", "-addext", f"subjectAltName={','.join(known)}"]
    _run_openssl([*certificate, *files, *use], layout)


def write_kubeconfig(description: Description, name: str, token: str) -> None:
    """Write the kubeconfig of that name, which only root can read."""
    path = description.layout.kubeconfig(name)
    # Before the token is in it: write_text alone would make it readable for all.
    path.touch(mode=0o600)
    path.write_text(render.kubeconfig(description.server, description.layout.authority, token))


def _run_openssl(arguments: list[str], layout: ClusterLayout) -> None:
    """Run openssl in the cluster's folder.

    Raises:
        ClusterError: it failed.
    """
    done = subprocess.run(
        ["openssl", *arguments], cwd=layout.folder, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ClusterError(f"openssl {arguments[0]} failed: {done.stderr.strip()}")


def start_etcd(processes: Processes, description: Description) -> None:
    """Start etcd."""
    arguments = commands.etcd(description.layout)
    here = ["env", f"--chdir={description.layout.folder}"]
    processes.start(_ETCD, [*here, description.assets.binary(_ETCD), *arguments])


def start_api_server(processes: Processes, description: Description) -> None:
    """Start the API server; it waits for etcd by itself."""
    arguments = commands.kube_apiserver(
        description.layout,
        description.slot,
        machine_address() if description.node_count else _LOOPBACK,
        description.gates,
        audit=description.audit,
    )
    processes.start(API_SERVER, [description.assets.binary(API_SERVER), *arguments])


def wait_api_server(processes: Processes, description: Description) -> ApiClient:
    """Wait until the API server says that it is ready; returns an administrator's client.

    Raises:
        NotReady: it ended, or did not become ready in time.
    """
    authority = description.layout.authority

    def client() -> ApiClient | None:
        try:
            api = ApiClient(description.server, authority, description.users["admin"].token)
            return api if api.text("/readyz", _PROBE_SECONDS) == "ok" else None
        except (ApiRefused, ssl.SSLError):
            return None  # it starts, or it is not ready yet

    return wait_until((API_SERVER, _ETCD), processes, client)


def start_controllers(processes: Processes, description: Description) -> None:
    """Start the controller manager and the scheduler; the API server must be ready."""
    manager = commands.kube_controller_manager(description.layout, description.slot, description.gates)
    processes.start(CONTROLLER_MANAGER, [description.assets.binary(CONTROLLER_MANAGER), *manager])
    scheduler = commands.kube_scheduler(description.layout, description.slot, description.gates)
    processes.start(SCHEDULER, [description.assets.binary(SCHEDULER), *scheduler])


def machine_address() -> str:
    """The IPv4 address from which this machine would speak with others, loopback where it cannot.

    The kubelet takes it for its node's, too. From loopback, pods with a network of their own reach nothing.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # connect of a UDP socket sends nothing: the kernel only chooses a route, and with it the own
            # address.
            probe.connect(_SOMEWHERE)
        except OSError:
            return _LOOPBACK
        return str(probe.getsockname()[0])
