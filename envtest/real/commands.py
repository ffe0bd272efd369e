"""The command lines of a cluster's components; pure, each returns the arguments after the program."""

from __future__ import annotations

from envtest.client.layout import ClusterLayout, NodeLayout
from envtest.real.slots import Slot

# Off by default in 1.36: taints by rule, which tests of health need.
FEATURE_GATES = "DRADeviceTaintRules=true"
# Off by default; the driver falls back to them on older clusters.
OLDER_APIS = "resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=true"
SERVICE_ADDRESSES = "10.96.0.0/16"
ISSUER = "https://kubernetes.default.svc"


def etcd(layout: ClusterLayout, slot: Slot) -> list[str]:
    """etcd with one member on loopback; it does not wait for the disk, nothing here outlives it."""
    clients = f"http://127.0.0.1:{slot.port('etcd')}"
    peers = f"http://127.0.0.1:{slot.port('etcd-peer')}"
    return [
        f"--data-dir={layout.folder}/etcd",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
        "--unsafe-no-fsync",
    ]


def kube_apiserver(layout: ClusterLayout, slot: Slot, address: str, *, audit: bool) -> list[str]:
    """The API server: rights by node and RBAC, a certificate of its own, users by static tokens.

    ``address`` is this machine's, at which pods reach it. Others of its network could too, so nobody is
    answered without a token.
    """
    arguments = [
        f"--etcd-servers=http://127.0.0.1:{slot.port('etcd')}",
        f"--secure-port={slot.port('kube-apiserver')}",
        "--bind-address=0.0.0.0",
        f"--advertise-address={address}",
        f"--tls-cert-file={layout.authority}",
        f"--tls-private-key-file={layout.pki}/apiserver.key",
        f"--token-auth-file={layout.tokens}",
        "--anonymous-auth=false",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        # Nobody comes with a certificate; the components look for the authority all the same.
        f"--client-ca-file={layout.folder}/kubelet-client.crt",
        f"--service-account-issuer={ISSUER}",
        f"--service-account-key-file={layout.folder}/service-accounts.key",
        f"--service-account-signing-key-file={layout.folder}/service-accounts.key",
        f"--service-cluster-ip-range={SERVICE_ADDRESSES}",
        "--endpoint-reconciler-type=none",
        "--allow-privileged",
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-client-certificate={layout.folder}/kubelet-client.crt",
        f"--kubelet-client-key={layout.folder}/kubelet-client.key",
        f"--runtime-config={OLDER_APIS}",
        f"--feature-gates={FEATURE_GATES}",
    ]
    if audit:
        arguments += [
            f"--audit-policy-file={layout.folder}/audit-policy.json",
            f"--audit-log-path={layout.logs}/audit.log",
            "--audit-log-mode=blocking",
        ]
    return arguments


def kube_controller_manager(layout: ClusterLayout, slot: Slot) -> list[str]:
    """The controller manager, with a client that may send as much as it likes."""
    kubeconfig = layout.kubeconfig("controller-manager")
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        f"--secure-port={slot.port('kube-controller-manager')}",
        f"--cert-dir={layout.folder}/controller-manager",
        f"--service-account-private-key-file={layout.folder}/service-accounts.key",
        f"--root-ca-file={layout.authority}",
        "--use-service-account-credentials",
        "--controllers=*,-node-ipam-controller",
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
        f"--feature-gates={FEATURE_GATES}",
    ]


def kube_scheduler(layout: ClusterLayout, slot: Slot) -> list[str]:
    """The scheduler; its client's limits are in its configuration file."""
    kubeconfig = layout.kubeconfig("scheduler")
    return [
        f"--config={layout.folder}/scheduler.json",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={slot.port('kube-scheduler')}",
        f"--cert-dir={layout.folder}/scheduler",
        f"--feature-gates={FEATURE_GATES}",
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
