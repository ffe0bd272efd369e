"""The values of the chart: their names, types, defaults and meaning.

``values.yaml``, ``values.schema.json`` and ``docs/values.md`` are made from these types (``generate.py``).
Names are those of the chart, so they are in its case.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from tools.chart.classes import class_toggles, opt_in_toggles
from tools.chart.described import Between, Object, OrEmpty, Schema, Text, Toggles
from tools.chart.node_config import NodeConfiguration
from tools.chart.workloads import (
    Controller,
    Dashboards,
    Labels,
    Metrics,
    Mps,
    NetworkPolicy,
    Page,
    Plugin,
    PrometheusRule,
    ServiceMonitor,
    Uninstall,
    UpdateStrategy,
    Webhook,
)

_ABSOLUTE = Text("^/.*[^/]$")
_TOLERATION: Object = {"type": "object"}
_NAMED: Object = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}


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
