"""Updates of the valid pods of the cases: what Kubernetes lets change, and what it does not."""

from __future__ import annotations

from tools.conformance.validation.changes import REMOVED, Change

_MAIN = "spec.containers.0"
_RESOURCES = f"{_MAIN}.resources"
_NODE_AFFINITY = "spec.affinity.nodeAffinity"
_TERMS = f"{_NODE_AFFINITY}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"

UPDATES: tuple[tuple[Change, ...], ...] = (
    (("metadata.labels", {"app": "other"}),),
    (("metadata.labels", {"a b": "x"}),),
    (("metadata.name", "other"),),
    (("metadata.uid", "other"),),
    (("metadata.finalizers", ["example.com/keep"]),),
    (("metadata.annotations", {"kubernetes.io/config.mirror": "x"}),),
    (("metadata.annotations", {"container.apparmor.security.beta.kubernetes.io/main": "unconfined"}),),
    (("spec.nodeName", "node-2"),),
    ((f"{_MAIN}.image", "example.com/train:v2"),),
    ((f"{_MAIN}.image", ""),),
    ((f"{_MAIN}.image", " a"),),
    (("spec.initContainers.0.image", "setup:2"),),
    ((f"{_MAIN}.name", "other"),),
    ((f"{_MAIN}.command", ["sleep"]),),
    ((f"{_RESOURCES}.limits.cpu", "3"),),
    ((f"{_RESOURCES}.limits.cpu", "2000m"),),
    ((f"{_RESOURCES}.requests.cpu", "0.5"),),
    ((f"{_RESOURCES}.claims", []),),
    (("spec.containers.1", {"name": "helper", "image": "a"}),),
    (("spec.containers", [{"name": "main", "image": "a"}]),),
    (("spec.initContainers", []),),
    (("spec.activeDeadlineSeconds", 10),),
    (("spec.activeDeadlineSeconds", 4000),),
    (("spec.activeDeadlineSeconds", REMOVED),),
    (("spec.activeDeadlineSeconds", -1),),
    (("spec.tolerations.2.tolerationSeconds", 20),),
    (("spec.tolerations.2.tolerationSeconds", REMOVED),),
    (("spec.tolerations.0.effect", "NoExecute"),),
    (("spec.tolerations", []),),
    (("spec.schedulingGates", [{"name": "a"}]),),
    (("spec.terminationGracePeriodSeconds", 1),),
    (("spec.nodeSelector", {"gpu": "yes", "more": "yes"}),),
    ((_NODE_AFFINITY, REMOVED),),
    (("spec.affinity", REMOVED),),
    (("spec.resourceClaims.1.resourceClaimName", "other"),),
    (("spec.volumes.0.emptyDir", {}),),
    (("spec.volumes.0.hostPath", {"path": "/a"}),),
    (("spec.serviceAccountName", "other"),),
    (("spec.hostNetwork", False),),
    (("spec.hostUsers", False),),
    (("spec.priority", 0),),
    (("spec.containers.1.resources", {}),),
    (("spec.containers.1.env", []),),
    (("spec.containers.1.securityContext", {}),),
    (("spec.overhead", {}),),
)

WAITING_UPDATES: tuple[tuple[Change, ...], ...] = (
    (("spec.schedulingGates", []),),
    (("spec.schedulingGates", [{"name": "example.com/other"}]),),
    (("spec.schedulingGates.0.name", "example.com/new"),),
    (("spec.nodeSelector", {"gpu": "yes", "more": "yes"}),),
    (("spec.nodeSelector", {"gpu": "no", "a": "b"}),),
    (("spec.nodeSelector", {}),),
    ((_TERMS, [{}]),),
    ((_TERMS, [{}, {}]),),
    ((f"{_TERMS}.0.matchExpressions", [{"key": "gpu", "operator": "Exists"}]),),
    ((f"{_TERMS}.0.matchFields", [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}] * 2),),
    ((_NODE_AFFINITY, {"preferredDuringSchedulingIgnoredDuringExecution": []}),),
    ((_NODE_AFFINITY, REMOVED),),
    (("spec.affinity", REMOVED),),
    (("spec.affinity", {}),),
    (("spec.affinity.podAffinity", {}),),
    ((f"{_MAIN}.name", "other"),),
    (("spec.nodeName", "node-1"),),
    (("spec.schedulingGates", []), ("spec.nodeName", "node-1")),
)
