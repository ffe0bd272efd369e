"""The values of the processes on the nodes, of the webhook, and of what watches them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from tools.chart.described import Between, Object, OrEmpty, Schema, Text, quantity

Labels = dict[str, str]
Amounts = dict[str, Annotated[str, quantity()]]

_PORTION: Object = {"type": ["integer", "string"], "pattern": "^[0-9]+%?$", "minimum": 0}
_ENVIRONMENT: Object = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}


@dataclass(frozen=True, slots=True)
class Resources:
    """What the container asks for."""

    requests: Annotated[Amounts, "What the scheduler sets aside."] = field(default_factory=dict)
    limits: Annotated[
        Amounts,
        "What it gets at most. NVML takes memory for each GPU, so a limit of memory can end the process.",
    ] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _OfEachNode:
    """What controller and plugin both have."""

    extraArgs: Annotated[list[str], "Flags beside those that the chart gives."] = field(default_factory=list)
    extraEnv: Annotated[
        list[Annotated[Object, Schema(_ENVIRONMENT)]], "Environment variables, as in a container."
    ] = field(default_factory=list)
    podAnnotations: Annotated[Labels, "Annotations of its pods."] = field(default_factory=dict)
    resources: Annotated[Resources, "What its container asks for."] = field(
        default_factory=lambda: Resources({"cpu": "10m", "memory": "96Mi"})
    )


@dataclass(frozen=True, slots=True)
class Controller(_OfEachNode):
    """The controller, which publishes a node's GPUs."""


@dataclass(frozen=True, slots=True)
class Plugin(_OfEachNode):
    """The kubelet plugin, which prepares claims."""

    usedMemoryStatusSeconds: Annotated[
        int,
        Between(0, 86400),
        "How often the status of claims gets to tell what their containers use of GPU memory, where that "
        "changed by more than 5 percent; 0 never tells it. Metrics tell it always.",
    ] = 0


@dataclass(frozen=True, slots=True)
class Mps:
    """The MPS supervisor (docs/mps.md), which is needed where the node configuration shares GPUs by MPS."""

    enabled: Annotated[
        bool,
        "Run it on every GPU node. Its pods are replaced only when somebody deletes them (OnDelete), "
        "since the "
        "end of a daemon is the end of its clients.",
    ] = False
    dir: Annotated[str, Text("^/.*[^/]$"), "The folder of its socket and its daemons, on the host."] = (
        "/run/gpu.nvidia.com/mps"
    )
    shm: Annotated[
        Literal["own", "node"],
        "What daemons and their clients have as /dev/shm; node where mounts are not permitted.",
    ] = "own"
    shmMib: Annotated[
        int, Between(1, 1 << 20), "How much memory of their own the clients of a device exchange."
    ] = 1024
    extraArgs: Annotated[list[str], "Flags beside those that the chart gives."] = field(default_factory=list)
    extraEnv: Annotated[
        list[Annotated[Object, Schema(_ENVIRONMENT)]], "Environment variables, as in a container."
    ] = field(default_factory=list)
    podAnnotations: Annotated[Labels, "Annotations of its pods."] = field(default_factory=dict)
    resources: Annotated[
        Resources,
        "What its container asks for. The daemons run in it, and what clients exchange counts for "
        "the clients.",
    ] = field(default_factory=lambda: Resources({"cpu": "10m", "memory": "64Mi"}))


@dataclass(frozen=True, slots=True)
class RollingUpdate:
    """How many nodes are updated at once."""

    maxSurge: Annotated[int | str, Schema(_PORTION), "New pods that run beside old ones."] = 1
    maxUnavailable: Annotated[int | str, Schema(_PORTION), "Nodes that may be without a pod."] = 0


@dataclass(frozen=True, slots=True)
class UpdateStrategy:
    """How controller and plugin are replaced; without a surge a node prepares no claim meanwhile."""

    type: Annotated[Literal["RollingUpdate", "OnDelete"], "Whether pods are replaced by themselves."] = (
        "RollingUpdate"
    )
    rollingUpdate: Annotated[RollingUpdate, "For RollingUpdate."] = field(default_factory=RollingUpdate)


@dataclass(frozen=True, slots=True)
class CertManager:
    """Who signs, where cert-manager makes the certificate."""

    issuerKind: Annotated[
        Literal["selfSigned", "Issuer", "ClusterIssuer"],
        "selfSigned makes an Issuer that signs with nobody's key.",
    ] = "selfSigned"
    issuerName: Annotated[str, "The name of that Issuer or ClusterIssuer."] = ""


@dataclass(frozen=True, slots=True)
class Certificates:
    """Where the webhook's serving certificate comes from."""

    source: Annotated[
        Literal["selfSigned", "cert-manager", "secret"],
        "selfSigned: helm makes one at install and keeps it at upgrades, which takes helm itself to "
        "install (see "
        "docs/install.md); cert-manager: it makes and renews one; secret: you give one.",
    ] = "selfSigned"
    secretName: Annotated[str, "With secret: the name of a Secret of the type kubernetes.io/tls."] = ""
    caBundle: Annotated[str, "With secret: who signed it, as PEM in base64."] = ""
    certManager: Annotated[CertManager, "With cert-manager."] = field(default_factory=CertManager)


@dataclass(frozen=True, slots=True)
class Webhook:
    """The admission webhook, which says at once what prepare would refuse later."""

    enabled: Annotated[bool, "Run it."] = False
    replicas: Annotated[int, Between(1, 9), "How many pods; from two on one of them stays in a drain."] = 2
    failurePolicy: Annotated[
        Literal["Ignore", "Fail"],
        "What happens to objects while it does not answer. Prepare looks at everything again, so Ignore lets "
        "nothing unsafe pass.",
    ] = "Ignore"
    certificates: Annotated[Certificates, "Its serving certificate."] = field(default_factory=Certificates)
    extraArgs: Annotated[list[str], "Flags beside those that the chart gives."] = field(default_factory=list)
    podAnnotations: Annotated[Labels, "Annotations of its pods."] = field(default_factory=dict)
    resources: Annotated[Resources, "What its container asks for."] = field(
        default_factory=lambda: Resources({"cpu": "10m", "memory": "64Mi"}, {"memory": "512Mi"})
    )
    nodeSelector: Annotated[Labels, "Labels of the nodes that it runs on."] = field(default_factory=dict)
    tolerations: Annotated[list[Object], "Taints of nodes that it bears, as in a pod."] = field(
        default_factory=list
    )
    affinity: Annotated[Object, "Where it runs, as in a pod."] = field(default_factory=dict)
    priorityClassName: Annotated[str, "Its priority class."] = "system-cluster-critical"


@dataclass(frozen=True, slots=True)
class PageService:
    """How the page is reached without kubectl port-forward."""

    enabled: Annotated[
        bool,
        "Make a Service, and serve at the pod's address. The page has no login: let nobody but an "
        "authenticating proxy reach it.",
    ] = False
    names: Annotated[
        list[Annotated[str, Text("^[A-Za-z0-9.-]+$")]],
        "Names by which browsers reach it through the proxy; requests to others are refused.",
    ] = field(default_factory=list)
    allowedFrom: Annotated[
        list[Object], "Who reaches it, as in a NetworkPolicy's from: the proxy's pods."
    ] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Page:
    """The page that gpuctl web serves (docs/page.md)."""

    enabled: Annotated[
        bool,
        "Run it, for the whole cluster. By default it listens inside of its pod alone, where kubectl "
        "port-forward reaches it.",
    ] = False
    service: Annotated[PageService, "How it is reached without kubectl port-forward."] = field(
        default_factory=PageService
    )
    extraArgs: Annotated[list[str], "Flags beside those that the chart gives."] = field(default_factory=list)
    podAnnotations: Annotated[Labels, "Annotations of its pod."] = field(default_factory=dict)
    resources: Annotated[
        Resources, "What its container asks for. 1,000 nodes with 8 GPUs take about 160 MiB of memory."
    ] = field(default_factory=lambda: Resources({"cpu": "10m", "memory": "96Mi"}, {"memory": "1Gi"}))
    nodeSelector: Annotated[Labels, "Labels of the nodes that it runs on."] = field(default_factory=dict)
    tolerations: Annotated[list[Object], "Taints of nodes that it bears, as in a pod."] = field(
        default_factory=list
    )
    affinity: Annotated[Object, "Where it runs, as in a pod."] = field(default_factory=dict)
    priorityClassName: Annotated[str, "Its priority class; empty for that of the cluster."] = ""


@dataclass(frozen=True, slots=True)
class Metrics:
    """Metrics of all processes."""

    enabled: Annotated[
        bool,
        "Serve them: controller 9401, plugin 9402, webhook 9400. They name claims and their namespaces; "
        "networkPolicy.metricsFrom says who reaches them.",
    ] = False


@dataclass(frozen=True, slots=True)
class ServiceMonitor:
    """A ServiceMonitor for the Prometheus operator."""

    enabled: Annotated[bool, "Make one; the operator's kinds have to be there, and metrics enabled."] = False
    labels: Annotated[Labels, "Labels by which your Prometheus finds it."] = field(default_factory=dict)
    interval: Annotated[str, Text("^[0-9]+(ms|s|m)$"), OrEmpty(), "How often; empty for Prometheus' own."] = (
        ""
    )


@dataclass(frozen=True, slots=True)
class PrometheusRule:
    """Recording rules and alerts for the Prometheus operator (docs/monitoring.md)."""

    enabled: Annotated[
        bool, "Make PrometheusRules; the operator's kinds have to be there, and metrics be scraped."
    ] = False
    labels: Annotated[Labels, "Labels by which your Prometheus finds them."] = field(default_factory=dict)
    docsUrl: Annotated[
        str,
        Text("^https?://.+[^/]$"),
        OrEmpty(),
        "Where people on duty read this project's docs folder; it comes before the alerts' runbook_url.",
    ] = ""


@dataclass(frozen=True, slots=True)
class Dashboards:
    """Dashboards as ConfigMaps, which a sidecar of Grafana loads (docs/monitoring.md)."""

    enabled: Annotated[bool, "Make the ConfigMaps."] = False
    labels: Annotated[Labels, "Labels by which Grafana's sidecar finds them."] = field(
        default_factory=lambda: {"grafana_dashboard": "1"}
    )
    annotations: Annotated[Labels, "Annotations, a folder in Grafana perhaps."] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NetworkPolicy:
    """NetworkPolicies that let nobody reach the pods but where they serve."""

    enabled: Annotated[bool, "Make them. Probes come from the node, which they let through."] = True
    metricsFrom: Annotated[
        list[Object], "Who reaches the metrics, as in a NetworkPolicy's from; all pods when it is empty."
    ] = field(default_factory=list)
    apiServerPorts: Annotated[
        list[Annotated[int, Between(1, 65535)]],
        "The pods reach only these, the API server's own behind its Service, and DNS; all when it is empty.",
    ] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Uninstall:
    """The Job that runs before the release is deleted (docs/uninstall.md)."""

    nodesSeconds: Annotated[
        int, Between(1), "How long all nodes may take to be cleaned. Nodes that are down are not waited for."
    ] = 120
    rendered: Annotated[
        bool,
        "Have it among the objects also where helm only renders them, helm template for one. Whoever applies "
        "it uninstalls.",
    ] = False
