"""The command lines of a cluster's components; pure, each returns the arguments after the program."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address

from envtest.client.layout import ClusterLayout, NodeLayout
from envtest.real.slots import Slot

# Off by default in 1.36; tests of health need taints by rule.
FEATURE_GATES = ("DRADeviceTaintRules",)
# Off by default. Tests of the webhook send objects in all versions, and the scheduler of 1.36 reads
# DeviceTaintRules as v1beta2. v1alpha3 has ResourcePoolStatusRequest.
OTHER_APIS = ",".join(f"resource.k8s.io/{version}=true" for version in ("v1beta1", "v1beta2", "v1alpha3"))
SERVICE_ADDRESSES = "10.96.0.0/16"
ISSUER = "https://kubernetes.default.svc"


def _feature_gates(more: Sequence[str]) -> str:
    return f"--feature-gates={','.join(f'{gate}=true' for gate in (*FEATURE_GATES, *more))}"


def etcd(layout: ClusterLayout) -> list[str]:
    """etcd with one member, to be run in the cluster's folder, whose sockets only root reaches.

    Who writes to etcd passes by all checks of the API server: any user who reached it would be root.
    """
    return [
        f"--data-dir={layout.folder}/etcd",
        f"--listen-client-urls=unix://{layout.etcd_socket}",
        # Members tell each other, and this is the only one. etcd 3.6, of Kubernetes 1.36, takes no path here.
        "--advertise-client-urls=http://127.0.0.1:2379",
        # In the current folder: instead of an absolute path etcd takes an abstract name, which every user
        # reaches.
        "--listen-peer-urls=unix://etcd-peer.sock",
        # The data does not outlive the cluster, so nothing waits for the disk.
        "--unsafe-no-fsync",
    ]


def kube_apiserver(
    layout: ClusterLayout, slot: Slot, address: str, gates: Sequence[str] = (), *, audit: bool
) -> list[str]:
    """The API server: rights by node and RBAC, a certificate of its own, users by static tokens.

    ``address`` is the one of this machine at which pods reach it, loopback where there are none; ``gates``
    are turned on.
    """
    bound = address if ip_address(address).is_loopback else "0.0.0.0"  # noqa: S104 - pods have own networks
    arguments = [
        f"--etcd-servers=unix://{layout.etcd_socket}",
        f"--secure-port={slot.port('kube-apiserver')}",
        f"--bind-address={bound}",
        f"--advertise-address={address}",
        f"--tls-cert-file={layout.authority}",
        f"--tls-private-key-file={layout.pki}/apiserver.key",
        f"--token-auth-file={layout.tokens}",
        # The port is open to the whole network of the machine: nobody is answered without a token.
        "--anonymous-auth=false",
        "--authorization-mode=Node,RBAC",
        # Limits kubelets to objects of their own nodes, slices included.
        "--enable-admission-plugins=NodeRestriction",
        # No client has a certificate, but components read this authority from the API server at their start.
        f"--client-ca-file={layout.folder}/kubelet-client.crt",
        f"--service-account-issuer={ISSUER}",
        f"--service-account-key-file={layout.folder}/service-accounts.key",
        f"--service-account-signing-key-file={layout.folder}/service-accounts.key",
        f"--service-cluster-ip-range={SERVICE_ADDRESSES}",
        # No Endpoints for the Service kubernetes: nobody would route to them.
        "--endpoint-reconciler-type=none",
        # Off by default; the pods of the driver are privileged.
        "--allow-privileged",
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-client-certificate={layout.folder}/kubelet-client.crt",
        f"--kubelet-client-key={layout.folder}/kubelet-client.key",
        f"--runtime-config={OTHER_APIS}",
        _feature_gates(gates),
    ]
    if audit:
        arguments += [
            f"--audit-policy-file={layout.folder}/audit-policy.json",
            f"--audit-log-path={layout.logs}/audit.log",
            # A request is answered after its line is written: what a test did is in the log.
            "--audit-log-mode=blocking",
        ]
    return arguments


def kube_controller_manager(layout: ClusterLayout, slot: Slot, gates: Sequence[str] = ()) -> list[str]:
    """The controller manager; ``gates`` are turned on."""
    kubeconfig = layout.kubeconfig("controller-manager")
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        # There is one only, and an election would take time.
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        f"--secure-port={slot.port('kube-controller-manager')}",
        f"--cert-dir={layout.folder}/controller-manager",
        f"--service-account-private-key-file={layout.folder}/service-accounts.key",
        f"--root-ca-file={layout.authority}",
        # Each controller has an account of its own, with the rights that RBAC gives to it, as on clusters of
        # kubeadm.
        "--use-service-account-credentials",
        # Pods get their addresses from the CNI configuration of their node.
        "--controllers=*,-node-ipam-controller",
        # The default limit of the client would hide what the driver costs.
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
        _feature_gates(gates),
    ]


def kube_scheduler(layout: ClusterLayout, slot: Slot, gates: Sequence[str] = ()) -> list[str]:
    """The scheduler; its client's limits are in its configuration file. ``gates`` are turned on."""
    kubeconfig = layout.kubeconfig("scheduler")
    return [
        f"--config={layout.folder}/scheduler.json",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={slot.port('kube-scheduler')}",
        f"--cert-dir={layout.folder}/scheduler",
        _feature_gates(gates),
    ]


def containerd(node: NodeLayout) -> list[str]:
    """containerd of a node."""
    return ["--config", f"{node.folder}/containerd.toml"]


def kubelet(layout: ClusterLayout, node: NodeLayout) -> list[str]:
    """The kubelet of a node."""
    return [
        f"--config={node.folder}/kubelet.json",
        f"--kubeconfig={layout.kubeconfig(node.name)}",
        f"--hostname-override={node.name}",
        f"--root-dir={node.kubelet_dir}",
        f"--cert-dir={node.folder}/pki",
    ]
