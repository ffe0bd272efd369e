"""The values of the chart: their names, types, defaults and meaning.

``values.yaml``, ``values.schema.json`` and ``docs/values.md`` are generated from these types
(``generate.py``). Names are in camelCase, as usual in Kubernetes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import yaml

from driver.health.health_rules import SCHEMA as HEALTH_SCHEMA
from driver.policy.config import pool_schema, rule_schema
from tools.chart.schema import Between, Object, OrEmpty, Schema, Text, Toggles, quantity

Labels = dict[str, str]
Amounts = dict[str, Annotated[str, quantity()]]

DEVICE_CLASSES = Path(__file__).resolve().parents[2] / "deviceclasses"

_ABSOLUTE = Text("^/.*[^/]$")
_TOLERATION: Object = {"type": "object"}
_NAMED: Object = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
_PORTION: Object = {"type": ["integer", "string"], "pattern": "^[0-9]+%?$", "minimum": 0}


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
        list[Annotated[Object, Schema(_NAMED)]], "Environment variables, as in a container."
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
        list[Annotated[Object, Schema(_NAMED)]], "Environment variables, as in a container."
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


def class_toggles() -> dict[str, bool]:
    """The names of the classes in ``deviceclasses/``, all on."""
    return {name: True for file in sorted(DEVICE_CLASSES.glob("*.yaml")) for name in _class_names(file)}


def opt_in_toggles() -> dict[str, bool]:
    """The files in ``deviceclasses/opt-in/``, all off: classes with resource names of a device plugin."""
    return {file.stem: False for file in sorted((DEVICE_CLASSES / "opt-in").glob("*.yaml"))}


def _class_names(file: Path) -> list[str]:
    """The names of the classes in a file."""
    return [one["metadata"]["name"] for one in yaml.safe_load_all(file.read_text()) if one]


@dataclass(frozen=True, slots=True)
class NodeConfiguration:
    """In which forms GPUs are offered; it becomes a ConfigMap, and a change is seen without a restart."""

    version: Annotated[Literal["v1"], "The version of its format, as in a file."] = "v1"
    rules: Annotated[
        list[Annotated[Object, Schema(rule_schema())]],
        "Rules of the nodes that no pool takes in. Without any, every GPU is offered whole, or as "
        "the partitions "
        "that an admin made.",
    ] = field(default_factory=list)
    pools: Annotated[
        list[Annotated[Object, Schema(pool_schema())]],
        "Rules of pools of nodes: each with name, nodeSelector (matchLabels, matchExpressions) and "
        "rules. The first "
        "whose selector a node's labels meet decides.",
    ] = field(default_factory=list)
    health: Annotated[
        Object,
        Schema(HEALTH_SCHEMA),
        "How faults of GPUs are judged, on all nodes: xids (code to class), and evict, the faults for which "
        "pods are evicted. Without it none is.",
    ] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Image:
    """The image, one for all processes."""

    repository: Annotated[
        str, Text("^[^:]+(:[0-9]+/.+)?$"), "Where it lies, without a tag. None is published: make image."
    ] = "localhost/gpu-dra"
    tag: Annotated[str, "Its tag; empty for the chart's appVersion."] = ""
    pullPolicy: Annotated[Literal["IfNotPresent", "Always", "Never"], "When it is pulled."] = "IfNotPresent"


@dataclass(frozen=True, slots=True)
class ApiServer:
    """Where the pods reach the API server, for clusters in which its Service does not lead there."""

    host: Annotated[str, "A name or an address; empty for the cluster's own."] = ""
    port: Annotated[str, Text("^[0-9]{1,5}$"), OrEmpty(), "Its port, in quotes."] = ""


@dataclass(frozen=True, slots=True)
class Driver:
    """The NVIDIA driver of the nodes."""

    root: Annotated[
        str,
        Text("^(auto|/.*)$"),
        "Where it is installed, as the host sees it: / for the host itself, /run/nvidia/driver for "
        "the driver "
        "container of the GPU operator, or auto, which looks in all known places and mounts the host's root "
        "read-only for it.",
    ] = "auto"
    cdiHook: Annotated[
        str, Text("^/.+"), OrEmpty(), "nvidia-cdi-hook on the host; empty to put the image's own there."
    ] = ""


@dataclass(frozen=True, slots=True)
class OpenShift:
    """What OpenShift needs beside the rest."""

    securityContextConstraints: Annotated[
        bool, "Make SecurityContextConstraints for the pods on the nodes."
    ] = False


@dataclass(frozen=True, slots=True)
class CriticalPodsQuota:
    """A ResourceQuota that admits pods of the priority class."""

    enabled: Annotated[
        bool,
        "Make one: GKE, for one, admits system-node-critical outside of kube-system only where a "
        "quota says so.",
    ] = False
    pods: Annotated[int, Between(1), "How many pods it admits."] = 10000


@dataclass(frozen=True, slots=True)
class Values:
    """All values of the chart."""

    image: Annotated[Image, "The image, one for all processes."] = field(default_factory=Image)
    imagePullSecrets: Annotated[
        list[Annotated[Object, Schema(_NAMED)]], "Secrets for pulling it, as in a pod."
    ] = field(default_factory=list)
    apiServer: Annotated[
        ApiServer, "Where the pods reach the API server, where its Service does not lead there."
    ] = field(default_factory=ApiServer)
    kubeletRoot: Annotated[
        str, _ABSOLUTE, "The kubelet's --root-dir; the folders for plugins and pod-resources lie below it."
    ] = "/var/lib/kubelet"
    cdiDir: Annotated[str, _ABSOLUTE, "A folder in which the container runtime looks for CDI specs."] = (
        "/var/run/cdi"
    )
    driver: Annotated[Driver, "The NVIDIA driver of the nodes."] = field(default_factory=Driver)
    logLevel: Annotated[Literal["debug", "info", "warning", "error"], "What all processes log."] = "info"
    gpuNodes: Annotated[
        Literal["labelled", "all"],
        "The nodes with pods: labelled by Node Feature Discovery or the GPU operator, or all, for clusters "
        "without either. A node without a GPU costs little and publishes nothing.",
    ] = "labelled"
    nodeSelector: Annotated[Labels, "Labels that these nodes have beside it."] = field(default_factory=dict)
    affinity: Annotated[Object, "In place of what gpuNodes says, as in a pod."] = field(default_factory=dict)
    tolerations: Annotated[
        list[Annotated[Object, Schema(_TOLERATION)]], "Taints of nodes that the pods bear, as in a pod."
    ] = field(
        default_factory=lambda: [
            {"key": "nvidia.com/gpu", "operator": "Exists"},
            {"key": "CriticalAddonsOnly", "operator": "Exists"},
        ]
    )
    priorityClassName: Annotated[
        str,
        "The priority class of the pods on the nodes. A node that evicts them prepares no claim. See "
        "criticalPodsQuota.",
    ] = "system-node-critical"
    criticalPodsQuota: Annotated[CriticalPodsQuota, "A ResourceQuota that admits pods of that class."] = (
        field(default_factory=CriticalPodsQuota)
    )
    hostNetwork: Annotated[
        bool,
        "The pods on the nodes use the host's network. Then two cannot run side by side: see updateStrategy.",
    ] = False
    updateStrategy: Annotated[
        UpdateStrategy,
        "How controller and plugin are replaced. Without a surge a node prepares no claim meanwhile.",
    ] = field(default_factory=UpdateStrategy)
    devicePlugin: Annotated[
        Literal["taint", "withhold"],
        "What becomes of a node's devices while a device plugin offers GPUs there as well: they have a "
        "taint, or none is published.",
    ] = "taint"
    nodeConfig: Annotated[
        NodeConfiguration, "In which forms the GPUs are offered (docs/node-configuration.md)."
    ] = field(default_factory=NodeConfiguration)
    deviceClasses: Annotated[
        dict[str, bool],
        Toggles(tuple(class_toggles())),
        "The classes by which claims ask for devices, each on or off.",
    ] = field(default_factory=class_toggles)
    optInClasses: Annotated[
        dict[str, bool],
        Toggles(tuple(opt_in_toggles())),
        "Classes for pods that ask in their limits, as with NVIDIA's device plugin: `gpu` is "
        "nvidia.com/gpu, `gpu-shared` "
        "is nvidia.com/gpu.shared, `mig-profiles` is nvidia.com/mig-`<profile>`. No device plugin may "
        "offer the same.",
    ] = field(default_factory=opt_in_toggles)
    controller: Annotated[Controller, "The controller, which publishes a node's GPUs."] = field(
        default_factory=Controller
    )
    plugin: Annotated[Plugin, "The kubelet plugin, which prepares claims."] = field(default_factory=Plugin)
    mps: Annotated[Mps, "The MPS supervisor (docs/mps.md), needed where GPUs are shared by MPS."] = field(
        default_factory=Mps
    )
    webhook: Annotated[
        Webhook, "The admission webhook, which says at once what prepare would refuse later."
    ] = field(default_factory=Webhook)
    page: Annotated[Page, "The page that gpuctl web serves, for the whole cluster (docs/page.md)."] = field(
        default_factory=Page
    )
    uninstall: Annotated[
        Uninstall,
        "helm uninstall refuses while a claim has a device, and cleans the nodes (docs/uninstall.md).",
    ] = field(default_factory=Uninstall)
    extraEnv: Annotated[
        list[Annotated[Object, Schema(_NAMED)]], "Environment variables of all processes, proxies perhaps."
    ] = field(default_factory=list)
    extraVolumes: Annotated[
        list[Annotated[Object, Schema(_NAMED)]], "Volumes of all pods on the nodes, as in a pod."
    ] = field(default_factory=list)
    extraVolumeMounts: Annotated[
        list[Annotated[Object, Schema(_NAMED)]], "Where they are mounted, as in a container."
    ] = field(default_factory=list)
    metrics: Annotated[Metrics, "Metrics of all processes."] = field(default_factory=Metrics)
    serviceMonitor: Annotated[ServiceMonitor, "A ServiceMonitor for the Prometheus operator."] = field(
        default_factory=ServiceMonitor
    )
    prometheusRule: Annotated[
        PrometheusRule, "Recording rules and alerts for the Prometheus operator (docs/monitoring.md)."
    ] = field(default_factory=PrometheusRule)
    dashboards: Annotated[
        Dashboards, "Dashboards as ConfigMaps, which a sidecar of Grafana loads (docs/monitoring.md)."
    ] = field(default_factory=Dashboards)
    networkPolicy: Annotated[
        NetworkPolicy,
        "NetworkPolicies: the pods are reached where they serve, no more.",
    ] = field(default_factory=NetworkPolicy)
    openshift: Annotated[OpenShift, "What OpenShift needs beside the rest."] = field(
        default_factory=OpenShift
    )
