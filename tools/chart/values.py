"""The values of the chart: their names, types, defaults and meaning.

``values.yaml``, ``values.schema.json`` and the tables of ``docs/configuration.md`` are generated from these
types (``generate.py``). Names are in camelCase, as usual in Kubernetes.
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
    """Requests and limits of a container."""

    requests: Annotated[Amounts, "Requests of the container."] = field(default_factory=dict)
    limits: Annotated[
        Amounts,
        "Limits of the container. NVML needs memory for each GPU, so a memory limit can kill the "
        "controller or the plugin.",
    ] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _OfEachNode:
    """What controller and plugin both have."""

    extraArgs: Annotated[list[str], "Additional command-line flags."] = field(default_factory=list)
    extraEnv: Annotated[
        list[Annotated[Object, Schema(_NAMED)]], "Additional environment variables, as in a container."
    ] = field(default_factory=list)
    podAnnotations: Annotated[Labels, "Annotations for its pods."] = field(default_factory=dict)
    resources: Annotated[Resources, "Requests and limits of its container."] = field(
        default_factory=lambda: Resources({"cpu": "10m", "memory": "96Mi"})
    )


@dataclass(frozen=True, slots=True)
class Controller(_OfEachNode):
    "The controller, which publishes the GPUs of its node."


@dataclass(frozen=True, slots=True)
class Plugin(_OfEachNode):
    """The kubelet plugin, which prepares claims."""

    usedMemoryStatusSeconds: Annotated[
        int,
        Between(0, 86400),
        "How often, in seconds, the used GPU memory is written into the status of claims if it changed "
        "by more than 5 percent; 0 turns this off. Metrics always have it.",
    ] = 0


@dataclass(frozen=True, slots=True)
class Mps:
    """The MPS supervisor (docs/sharing.md). It is required if a rule shares GPUs by MPS."""

    enabled: Annotated[
        bool,
        "Run the MPS supervisor on every GPU node. Its DaemonSet uses OnDelete: replacing a pod ends its "
        "MPS daemons and their clients, so you choose when.",
    ] = False
    dir: Annotated[str, Text("^/.*[^/]$"), "The folder on the host for its socket and its daemons."] = (
        "/run/gpu.nvidia.com/mps"
    )
    shmMib: Annotated[
        int, Between(1, 1 << 20), "The size in MiB of the /dev/shm that each MPS daemon and its clients get."
    ] = 1024
    extraArgs: Annotated[list[str], "Additional command-line flags."] = field(default_factory=list)
    extraEnv: Annotated[
        list[Annotated[Object, Schema(_NAMED)]], "Additional environment variables, as in a container."
    ] = field(default_factory=list)
    podAnnotations: Annotated[Labels, "Annotations for its pods."] = field(default_factory=dict)
    resources: Annotated[
        Resources,
        "Requests and limits of its container. The MPS daemons run in it; shared memory is charged to "
        "the clients.",
    ] = field(default_factory=lambda: Resources({"cpu": "10m", "memory": "64Mi"}))


@dataclass(frozen=True, slots=True)
class RollingUpdate:
    """How many nodes are updated at once."""

    maxSurge: Annotated[
        int | str,
        Schema(_PORTION),
        "How many nodes, or which percentage, may run a new pod next to the old one.",
    ] = 1
    maxUnavailable: Annotated[
        int | str,
        Schema(_PORTION),
        "How many nodes, or which percentage, may be without a pod during the update.",
    ] = 0


@dataclass(frozen=True, slots=True)
class UpdateStrategy:
    """How the pods of controller and plugin are replaced."""

    type: Annotated[
        Literal["RollingUpdate", "OnDelete"],
        "RollingUpdate replaces pods automatically; OnDelete replaces a pod when you delete it.",
    ] = "RollingUpdate"
    rollingUpdate: Annotated[RollingUpdate, "Settings for RollingUpdate."] = field(
        default_factory=RollingUpdate
    )


@dataclass(frozen=True, slots=True)
class CertManager:
    """Who signs, where cert-manager makes the certificate."""

    issuerKind: Annotated[
        Literal["selfSigned", "Issuer", "ClusterIssuer"],
        "The kind of the issuer; selfSigned creates a self-signed Issuer.",
    ] = "selfSigned"
    issuerName: Annotated[str, "The name of your Issuer or ClusterIssuer."] = ""


@dataclass(frozen=True, slots=True)
class Certificates:
    """Where the webhook's serving certificate comes from."""

    source: Annotated[
        Literal["selfSigned", "cert-manager", "secret"],
        "selfSigned: helm creates the certificate and keeps it across upgrades (only with helm on the "
        "cluster, see docs/install.md); cert-manager: cert-manager creates and renews it; "
        "secret: you provide it.",
    ] = "selfSigned"
    secretName: Annotated[str, "For secret: the name of a Secret of type kubernetes.io/tls."] = ""
    caBundle: Annotated[str, "For secret: the CA certificate in PEM, base64-encoded."] = ""
    certManager: Annotated[CertManager, "Settings for cert-manager."] = field(default_factory=CertManager)


@dataclass(frozen=True, slots=True)
class _OfTheCluster:
    """What the processes have that work for the whole cluster, in pods of their own."""

    enabled: bool = False
    replicas: Annotated[
        int, Between(1, 9), "Number of pods. One works, the others take over if it fails."
    ] = 1
    extraArgs: Annotated[list[str], "Additional command-line flags."] = field(default_factory=list)
    podAnnotations: Annotated[Labels, "Annotations for its pods."] = field(default_factory=dict)
    resources: Annotated[Resources, "Requests and limits of its container."] = field(
        default_factory=lambda: Resources({"cpu": "10m", "memory": "96Mi"}, {"memory": "1Gi"})
    )
    nodeSelector: Annotated[Labels, "Node labels that its pods require."] = field(default_factory=dict)
    tolerations: Annotated[list[Object], "Tolerations of its pods."] = field(default_factory=list)
    affinity: Annotated[Object, "Affinity of its pods."] = field(default_factory=dict)
    priorityClassName: Annotated[str, "Priority class of its pods."] = "system-cluster-critical"


@dataclass(frozen=True, slots=True)
class Webhook(_OfTheCluster):
    "The admission webhook, which reports mistakes in claims when they are created."

    enabled: Annotated[bool, "Run the webhook."] = False
    replicas: Annotated[
        int, Between(1, 9), "Number of pods. With two or more, a drain leaves one running."
    ] = 2
    failurePolicy: Annotated[
        Literal["Ignore", "Fail"],
        "What the API server does while the webhook does not answer. Ignore is safe: the kubelet plugin "
        "checks everything again.",
    ] = "Ignore"
    certificates: Annotated[Certificates, "The serving certificate."] = field(default_factory=Certificates)
    resources: Annotated[Resources, "Requests and limits of its container."] = field(
        default_factory=lambda: Resources({"cpu": "10m", "memory": "64Mi"}, {"memory": "512Mi"})
    )


@dataclass(frozen=True, slots=True)
class PageService:
    """Access to the page without kubectl port-forward."""

    enabled: Annotated[
        bool,
        "Create a Service and listen on the pod's address. The page has no login, so allow only an "
        "authenticating proxy to reach it.",
    ] = False
    names: Annotated[
        list[Annotated[str, Text("^[A-Za-z0-9.-]+$")]],
        "Host names that browsers use through the proxy. Requests for other host names are refused.",
    ] = field(default_factory=list)
    allowedFrom: Annotated[list[Object], "The proxy's pods, as in the from of a NetworkPolicy."] = field(
        default_factory=list
    )


@dataclass(frozen=True, slots=True)
class Page:
    """The page that shows the cluster's GPUs in a browser (docs/monitoring.md)."""

    enabled: Annotated[
        bool,
        "Run the page for the whole cluster. By default it listens on loopback in its pod, and you reach "
        "it with kubectl port-forward.",
    ] = False
    service: Annotated[PageService, "Access without kubectl port-forward."] = field(
        default_factory=PageService
    )
    extraArgs: Annotated[list[str], "Additional command-line flags."] = field(default_factory=list)
    podAnnotations: Annotated[Labels, "Annotations for its pod."] = field(default_factory=dict)
    resources: Annotated[
        Resources,
        "Requests and limits of its container. It needs about 160 MiB of memory for 1,000 nodes with 8 GPUs.",
    ] = field(default_factory=lambda: Resources({"cpu": "10m", "memory": "96Mi"}, {"memory": "1Gi"}))
    nodeSelector: Annotated[Labels, "Node labels that its pods require."] = field(default_factory=dict)
    tolerations: Annotated[list[Object], "Tolerations of its pods."] = field(default_factory=list)
    affinity: Annotated[Object, "Affinity of its pods."] = field(default_factory=dict)
    priorityClassName: Annotated[str, "Priority class of its pod; empty for the cluster's default."] = ""


@dataclass(frozen=True, slots=True)
class Preemptor(_OfTheCluster):
    """The preemptor, which evicts pods of lower priority for pods that wait for devices."""

    enabled: Annotated[
        bool, "Run the preemptor for the whole cluster. Start with dryRun, and read docs/tiers-and-quotas.md."
    ] = False
    dryRun: Annotated[bool, "Evict nobody, and only write events about who would be evicted."] = False
    evictionsPerMinute: Annotated[
        int, Between(1, 10000), "How many pods may be evicted within a minute, in the whole cluster."
    ] = 30
    exemptNamespaces: Annotated[
        list[str],
        "Namespaces whose pods are left alone: none is evicted, and nobody is evicted for them.",
    ] = field(default_factory=lambda: ["kube-system"])
    exemptPriorityClasses: Annotated[list[str], "Priority classes whose pods are left alone likewise."] = (
        field(default_factory=list)
    )
    nominate: Annotated[
        bool,
        "Write the node into the status of a pod for which room was made, so that the scheduler keeps CPU "
        "and memory there. It needs the permission to patch pods/status.",
    ] = False
    schedulerPreempts: Annotated[
        Literal["auto", "yes", "no"],
        "Whether the scheduler itself preempts for claims, so that the preemptor makes no room; auto asks "
        "the API server for its feature gates.",
    ] = "auto"


@dataclass(frozen=True, slots=True)
class Cliques(_OfTheCluster):
    """IMEX channels, by which the pods of a gang share GPU memory across nodes (docs/topology.md)."""

    enabled: Annotated[bool, "Offer channels, and create the DeviceClass nvlink-channel."] = False
    channels: Annotated[int, Between(1, 2047), "Channels of each clique: so many gangs can run in it."] = 64
    imexSocket: Annotated[
        str, "The socket of nvidia-imex on the hosts: IMEX_CMD_UNIX_DOMAIN_PATH of its configuration."
    ] = "/etc/nvidia-imex/imex_ctrl.sock"


@dataclass(frozen=True, slots=True)
class Metrics:
    """Metrics of all processes."""

    enabled: Annotated[
        bool,
        "Serve metrics: controller on port 9401, plugin 9402, webhook 9400, preemptor 9403, "
        "cliques 9404. Metrics name claims and namespaces; restrict access with networkPolicy.metricsFrom.",
    ] = False


@dataclass(frozen=True, slots=True)
class ServiceMonitor:
    """A ServiceMonitor for the Prometheus operator."""

    enabled: Annotated[
        bool, "Create a ServiceMonitor. It needs the Prometheus operator's CRDs and metrics.enabled."
    ] = False
    labels: Annotated[Labels, "Labels that your Prometheus selects it by."] = field(default_factory=dict)
    interval: Annotated[
        str, Text("^[0-9]+(ms|s|m)$"), OrEmpty(), "The scrape interval; empty for Prometheus's default."
    ] = ""


@dataclass(frozen=True, slots=True)
class PrometheusRule:
    """Recording rules and alerts for the Prometheus operator (docs/monitoring.md)."""

    enabled: Annotated[
        bool,
        "Create PrometheusRules. They need the Prometheus operator's CRDs, and metrics that are scraped.",
    ] = False
    labels: Annotated[Labels, "Labels that your Prometheus selects them by."] = field(default_factory=dict)
    docsUrl: Annotated[
        str,
        Text("^https?://.+[^/]$"),
        OrEmpty(),
        "The URL of your copy of this project's docs folder; it becomes the start of each alert's "
        "runbook_url.",
    ] = ""


@dataclass(frozen=True, slots=True)
class Dashboards:
    """Dashboards as ConfigMaps, which a sidecar of Grafana loads (docs/monitoring.md)."""

    enabled: Annotated[bool, "Create the ConfigMaps."] = False
    labels: Annotated[Labels, "Labels that Grafana's sidecar selects them by."] = field(
        default_factory=lambda: {"grafana_dashboard": "1"}
    )
    annotations: Annotated[Labels, "Annotations, for example the folder in Grafana."] = field(
        default_factory=dict
    )


@dataclass(frozen=True, slots=True)
class NetworkPolicy:
    """NetworkPolicies that allow traffic only to the ports that the pods serve."""

    enabled: Annotated[bool, "Create NetworkPolicies. They let probes from the node through."] = True
    metricsFrom: Annotated[
        list[Object],
        "Who may reach the metrics ports, as in the from of a NetworkPolicy; empty for every pod.",
    ] = field(default_factory=list)
    apiServerPorts: Annotated[
        list[Annotated[int, Between(1, 65535)]],
        "The ports of the API server behind its Service. Egress is limited to these and DNS; empty for "
        "no limit.",
    ] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Uninstall:
    """The Job that runs before the release is deleted (docs/lifecycle.md)."""

    nodesSeconds: Annotated[
        int,
        Between(1),
        "How many seconds the clean-up of all nodes may take. It does not wait for nodes that are down.",
    ] = 120
    rendered: Annotated[
        bool,
        "Include the Job in the output of helm template. Applying the Job starts the uninstallation.",
    ] = False


def class_toggles() -> dict[str, bool]:
    """The names of the classes in ``deviceclasses/``, all on."""
    return {name: True for file in sorted(DEVICE_CLASSES.glob("*.yaml")) for name in _class_names(file)}


def opt_in_toggles() -> dict[str, bool]:
    """The classes with resource names of a device plugin, all off, by their file without its ending."""
    files = [*(DEVICE_CLASSES / "opt-in").glob("*.yaml"), DEVICE_CLASSES.parent / "mig-profiles.yaml"]
    return {file.stem: False for file in sorted(files)}


def _class_names(file: Path) -> list[str]:
    """The names of the classes in a file."""
    return [one["metadata"]["name"] for one in yaml.safe_load_all(file.read_text()) if one]


@dataclass(frozen=True, slots=True)
class NodeConfiguration:
    """The forms in which GPUs are offered. They become a ConfigMap, read without a restart."""

    version: Annotated[Literal["v1"], "The version of the format."] = "v1"
    rules: Annotated[
        list[Annotated[Object, Schema(rule_schema())]],
        "Rules for nodes that are in no pool. Without rules every GPU is offered whole, or as the MIG "
        "devices that an administrator created.",
    ] = field(default_factory=list)
    pools: Annotated[
        list[Annotated[Object, Schema(pool_schema())]],
        "Rules for pools of nodes, each with name, nodeSelector (matchLabels, matchExpressions) and "
        "rules. A node uses the first pool that selects it.",
    ] = field(default_factory=list)
    health: Annotated[
        Object,
        Schema(HEALTH_SCHEMA),
        "How GPU faults are treated on all nodes: xids (XID code to class), and evict (the faults that "
        "evict pods; none by default).",
    ] = field(default_factory=dict)


# The grammar of image names (distribution/reference, regexp.go), with registries in lower case only: upper
# case is a name that a page wants replaced.
_REGISTRY = r"(([a-z0-9.-]+|\[[a-f0-9:]+\])(:[0-9]+)?/)?"
_PATH_PART = "[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*"
_TAG = "[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}(@sha256:[a-f0-9]{64})?"


@dataclass(frozen=True, slots=True)
class Image:
    "The image; all processes use the same one."

    repository: Annotated[
        str,
        Text(f"^{_REGISTRY}{_PATH_PART}(/{_PATH_PART})*$"),
        "The image's name without a tag. No image is published: build your own (docs/install.md) and set "
        "this.",
    ] = "localhost/gpu-dra"
    tag: Annotated[
        str, OrEmpty(), Text(f"^{_TAG}$"), "The image's tag; empty for the chart's appVersion."
    ] = ""
    pullPolicy: Annotated[Literal["IfNotPresent", "Always", "Never"], "The image pull policy."] = (
        "IfNotPresent"
    )


@dataclass(frozen=True, slots=True)
class ApiServer:
    """The address of the API server, for clusters where pods cannot reach it through its Service."""

    host: Annotated[str, "Host name or IP address; empty for the address that Kubernetes gives to pods."] = ""
    port: Annotated[str, Text("^[0-9]{1,5}$"), OrEmpty(), "The port, as a string."] = ""


@dataclass(frozen=True, slots=True)
class Driver:
    """The NVIDIA driver of the nodes."""

    root: Annotated[
        str,
        Text("^(auto|/.*)$"),
        "Where the NVIDIA driver is installed on the host: / for the host itself, /run/nvidia/driver for "
        "the GPU operator's driver container. auto searches all known places; for that it mounts the "
        "host's root read-only.",
    ] = "auto"
    cdiHook: Annotated[
        str,
        Text("^/.+"),
        OrEmpty(),
        "Path of nvidia-cdi-hook on the host; empty to install the image's copy on the host.",
    ] = ""


@dataclass(frozen=True, slots=True)
class OpenShift:
    """Additional objects for OpenShift."""

    securityContextConstraints: Annotated[
        bool, "Create SecurityContextConstraints for the pods on the nodes."
    ] = False


@dataclass(frozen=True, slots=True)
class CriticalPodsQuota:
    """A ResourceQuota that admits pods of the priority class."""

    enabled: Annotated[
        bool,
        "Create a ResourceQuota. GKE, for example, admits system-node-critical pods outside kube-system "
        "only with such a quota.",
    ] = False
    pods: Annotated[int, Between(1), "How many pods the quota admits."] = 10000


@dataclass(frozen=True, slots=True)
class Values:
    """All values of the chart."""

    image: Annotated[Image, "The image; all processes use the same one."] = field(default_factory=Image)
    imagePullSecrets: Annotated[list[Annotated[Object, Schema(_NAMED)]], "Pull secrets, as in a pod."] = (
        field(default_factory=list)
    )
    apiServer: Annotated[
        ApiServer,
        "The address of the API server, for clusters where pods cannot reach it through its Service.",
    ] = field(default_factory=ApiServer)
    kubeletRoot: Annotated[
        str, _ABSOLUTE, "The kubelet's --root-dir. Its folders for plugins and pod-resources are below it."
    ] = "/var/lib/kubelet"
    cdiDir: Annotated[str, _ABSOLUTE, "A folder that the container runtime reads CDI specs from."] = (
        "/var/run/cdi"
    )
    driver: Annotated[Driver, "The NVIDIA driver of the nodes."] = field(default_factory=Driver)
    logLevel: Annotated[Literal["debug", "info", "warning", "error"], "Log level of all processes."] = "info"
    gpuNodes: Annotated[
        Literal["labelled", "all"],
        "The nodes that get the driver's pods: labelled for nodes that Node Feature Discovery or the GPU "
        "operator labels as having a GPU, all for every node. On a node without a GPU the pods use few "
        "resources and publish nothing.",
    ] = "labelled"
    nodeSelector: Annotated[Labels, "Additional labels that a node must have."] = field(default_factory=dict)
    affinity: Annotated[Object, "Affinity of the pods on the nodes; replaces gpuNodes."] = field(
        default_factory=dict
    )
    tolerations: Annotated[
        list[Annotated[Object, Schema(_TOLERATION)]], "Tolerations of the pods on the nodes."
    ] = field(
        default_factory=lambda: [
            {"key": "nvidia.com/gpu", "operator": "Exists"},
            {"key": "CriticalAddonsOnly", "operator": "Exists"},
        ]
    )
    priorityClassName: Annotated[
        str,
        "Priority class of the pods on the nodes. If a node evicts them, no pod with a claim can start "
        "there. See criticalPodsQuota.",
    ] = "system-node-critical"
    criticalPodsQuota: Annotated[
        CriticalPodsQuota, "A ResourceQuota that admits pods of this priority class."
    ] = field(default_factory=CriticalPodsQuota)
    hostNetwork: Annotated[
        bool,
        "Use the host's network for the pods on the nodes. Two pods then cannot run side by side: set "
        "updateStrategy too.",
    ] = False
    updateStrategy: Annotated[
        UpdateStrategy,
        "How the pods of controller and plugin are replaced. Without a surge, a node cannot start pods "
        "with claims during its update.",
    ] = field(default_factory=UpdateStrategy)
    devicePlugin: Annotated[
        Literal["taint", "withhold"],
        "What happens while a device plugin offers GPUs on the same node: taint taints all devices, "
        "withhold publishes none.",
    ] = "taint"
    nodeConfig: Annotated[
        NodeConfiguration, "The forms in which GPUs are offered (docs/configuration.md)."
    ] = field(default_factory=NodeConfiguration)
    deviceClasses: Annotated[
        dict[str, bool],
        Toggles(tuple(class_toggles())),
        "The DeviceClasses to create, each on or off.",
    ] = field(default_factory=class_toggles)
    optInClasses: Annotated[
        dict[str, bool],
        Toggles(tuple(opt_in_toggles())),
        "DeviceClasses for pods that request GPUs in their limits, as with NVIDIA's device plugin: `gpu` "
        "is nvidia.com/gpu, `gpu-shared` is nvidia.com/gpu.shared, `mig-profiles` is "
        "nvidia.com/mig-`<profile>`. No device plugin may offer the same resource.",
    ] = field(default_factory=opt_in_toggles)
    controller: Annotated[Controller, "The controller, which publishes the GPUs of its node."] = field(
        default_factory=Controller
    )
    plugin: Annotated[Plugin, "The kubelet plugin, which prepares claims."] = field(default_factory=Plugin)
    mps: Annotated[
        Mps, "The MPS supervisor (docs/sharing.md). It is required if a rule shares GPUs by MPS."
    ] = field(default_factory=Mps)
    webhook: Annotated[
        Webhook, "The admission webhook, which reports mistakes in claims when they are created."
    ] = field(default_factory=Webhook)
    page: Annotated[Page, "The page that shows the cluster's GPUs in a browser (docs/monitoring.md)."] = (
        field(default_factory=Page)
    )
    preemptor: Annotated[
        Preemptor,
        "The preemptor, which evicts pods of lower priority for pods that wait for devices "
        "(docs/tiers-and-quotas.md).",
    ] = field(default_factory=Preemptor)
    cliques: Annotated[
        Cliques, "IMEX channels, by which the pods of a gang share memory across nodes (docs/topology.md)."
    ] = field(default_factory=Cliques)
    uninstall: Annotated[
        Uninstall,
        "The Job that helm uninstall runs to clean the nodes (docs/lifecycle.md). It fails while a claim "
        "has a device.",
    ] = field(default_factory=Uninstall)
    extraEnv: Annotated[
        list[Annotated[Object, Schema(_NAMED)]],
        "Environment variables for all processes, for example a proxy.",
    ] = field(default_factory=list)
    extraVolumes: Annotated[
        list[Annotated[Object, Schema(_NAMED)]], "Additional volumes for all pods on the nodes."
    ] = field(default_factory=list)
    extraVolumeMounts: Annotated[
        list[Annotated[Object, Schema(_NAMED)]], "Mounts for these volumes, as in a container."
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
        "NetworkPolicies that allow traffic only to the ports that the pods serve.",
    ] = field(default_factory=NetworkPolicy)
    openshift: Annotated[OpenShift, "Objects that only OpenShift needs."] = field(default_factory=OpenShift)
