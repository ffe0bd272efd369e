"""What an installation of the driver leaves behind in a cluster: objects, and processes of MPS."""

from pathlib import Path

from tests.clusters import DRIVER_NAMESPACE, RealCluster

_NAMESPACED = (
    *("/api/v1/%s/serviceaccounts", "/api/v1/%s/configmaps", "/api/v1/%s/secrets", "/api/v1/%s/services"),
    *("/api/v1/%s/pods", "/api/v1/%s/resourcequotas"),
    *("/apis/apps/v1/%s/daemonsets", "/apis/apps/v1/%s/deployments", "/apis/apps/v1/%s/controllerrevisions"),
    *("/apis/batch/v1/%s/jobs", "/apis/policy/v1/%s/poddisruptionbudgets"),
    *("/apis/rbac.authorization.k8s.io/v1/%s/roles", "/apis/rbac.authorization.k8s.io/v1/%s/rolebindings"),
    "/apis/networking.k8s.io/v1/%s/networkpolicies",
)
_OF_THE_CLUSTER = (
    *("/apis/rbac.authorization.k8s.io/v1/clusterroles", "/apis/resource.k8s.io/v1/resourceslices"),
    *("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", "/apis/resource.k8s.io/v1/deviceclasses"),
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
)
_NAMESPACES = (DRIVER_NAMESPACE, "default")
_OF_THE_CONTROL_PLANE = frozenset({"default", "kube-root-ca.crt"})
"""What it makes in every namespace, late perhaps."""


def left_in_cluster(cluster: RealCluster) -> set[str]:
    """The objects of the kinds that the driver makes, wherever it makes them."""
    collections = [path % f"namespaces/{name}" for path in _NAMESPACED for name in _NAMESPACES]
    return {
        f"{path}/{name}"
        for path in (*collections, *_OF_THE_CLUSTER)
        for name in (item["metadata"]["name"] for item in cluster.api.list_objects(path))
        if name not in _OF_THE_CONTROL_PLANE and not name.startswith("system:")
    }


def mps_processes(cluster: RealCluster) -> list[str]:
    """The processes of MPS in the cluster, by their command lines."""
    namespace = Path(f"/proc/{cluster.kubelet(0).host_pid}/ns/pid").readlink()
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "ns/pid").readlink() == namespace:
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if "mps" in words:
                    found.append(words)
        except (FileNotFoundError, PermissionError, ProcessLookupError):
            continue  # it ended meanwhile, or not even root may look at it
    return found
