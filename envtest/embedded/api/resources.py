"""The resources that the API server serves: names, kinds, scopes, subresources and verbs."""

from __future__ import annotations

from dataclasses import dataclass

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_STATUS_VERBS = ("get", "patch", "update")
_KINDS_OF_OTHERS = {"Eviction": ("policy", "v1"), "Scale": ("autoscaling", "v1")}
"""The kinds of subresources that are of another group than the resource."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One served resource. ``subresources`` maps the name of each to the kind that it takes and its verbs.

    ``idle`` is why objects of the resource are stored and have no effect in this cluster, else empty.
    """

    group: str
    plural: str
    singular: str
    kind: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    version: str = "v1"
    stored_group: str | None = None
    idle: str = ""

    @property
    def api_version(self) -> str:
        """``v1`` or ``group/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def collection(self) -> tuple[str, str]:
        """Where the objects are stored: events have two groups and one store."""
        return (self.group if self.stored_group is None else self.stored_group), self.plural

    def group_version_of(self, kind: str) -> tuple[str, str]:
        """Group and version of the kind that the resource or one of its subresources takes."""
        return _KINDS_OF_OTHERS.get(kind, (self.group, self.version))

    @property
    def qualified_name(self) -> str:
        """As messages name it: ``pods`` or ``resourceclaims.resource.k8s.io``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def verbs_of(self, subresource: str) -> tuple[str, ...]:
        """The verbs of a subresource, or of the resource for the empty name; none where there is none."""
        if not subresource:
            return self.verbs
        return next((verbs for name, _, verbs in self.subresources if name == subresource), ())

    def has(self, subresource: str) -> bool:
        """Whether it has this subresource; the empty name is the resource itself."""
        return not subresource or any(name == subresource for name, _, _ in self.subresources)


def _status(kind: str) -> tuple[str, str, tuple[str, ...]]:
    return ("status", kind, _STATUS_VERBS)


def _of_group(group: str, *kinds: tuple[str, str, str], namespaced: bool = False) -> list[Resource]:
    """Resources of one group that are stored and nothing else: singular, kind, and why they are idle."""
    return [
        Resource(
            group,
            f"{singular}s",
            singular,
            kind,
            namespaced=namespaced,
            idle=idle,
        )
        for singular, kind, idle in kinds
    ]


_DRA = "resource.k8s.io"
_SCALE = ("scale", "Scale", _STATUS_VERBS)
_NO_RIGHTS = "everybody may do everything"

RESOURCES: tuple[Resource, ...] = (
    Resource("", "configmaps", "configmap", "ConfigMap", short_names=("cm",)),
    Resource("", "events", "event", "Event", short_names=("ev",)),
    Resource(
        "",
        "limitranges",
        "limitrange",
        "LimitRange",
        short_names=("limits",),
        idle="no default or limit of it reaches a pod",
    ),
    Resource(
        "",
        "namespaces",
        "namespace",
        "Namespace",
        namespaced=False,
        short_names=("ns",),
        verbs=tuple(verb for verb in ALL_VERBS if verb != "deletecollection"),
        subresources=(("finalize", "Namespace", ("update",)), _status("Namespace")),
    ),
    Resource(
        "", "nodes", "node", "Node", namespaced=False, short_names=("no",), subresources=(_status("Node"),)
    ),
    Resource(
        "",
        "pods",
        "pod",
        "Pod",
        short_names=("po",),
        categories=("all",),
        subresources=(
            ("binding", "Binding", ("create",)),
            ("eviction", "Eviction", ("create",)),
            ("log", "Pod", ("get",)),
            ("proxy", "PodProxyOptions", ("get",)),
            _status("Pod"),
        ),
    ),
    Resource(
        "",
        "resourcequotas",
        "resourcequota",
        "ResourceQuota",
        short_names=("quota",),
        subresources=(_status("ResourceQuota"),),
    ),
    Resource("", "secrets", "secret", "Secret", idle="no container gets to see it"),
    Resource(
        "",
        "services",
        "service",
        "Service",
        short_names=("svc",),
        categories=("all",),
        subresources=(_status("Service"),),
        idle="it has no address, and nothing is routed to pods",
    ),
    Resource("", "serviceaccounts", "serviceaccount", "ServiceAccount", short_names=("sa",)),
    *_of_group(
        "admissionregistration.k8s.io",
        ("mutatingwebhookconfiguration", "MutatingWebhookConfiguration", "no webhook is called"),
        ("validatingwebhookconfiguration", "ValidatingWebhookConfiguration", "no webhook is called"),
        ("validatingadmissionpolicybinding", "ValidatingAdmissionPolicyBinding", "no policy is evaluated"),
    ),
    Resource(
        "admissionregistration.k8s.io",
        "validatingadmissionpolicies",
        "validatingadmissionpolicy",
        "ValidatingAdmissionPolicy",
        namespaced=False,
        subresources=(_status("ValidatingAdmissionPolicy"),),
        idle="no policy is evaluated",
    ),
    Resource(
        "apps",
        "daemonsets",
        "daemonset",
        "DaemonSet",
        short_names=("ds",),
        categories=("all",),
        subresources=(_status("DaemonSet"),),
        idle="no controller makes pods of it",
    ),
    Resource(
        "apps",
        "deployments",
        "deployment",
        "Deployment",
        short_names=("deploy",),
        categories=("all",),
        subresources=(_SCALE, _status("Deployment")),
    ),
    Resource(
        "apps",
        "replicasets",
        "replicaset",
        "ReplicaSet",
        short_names=("rs",),
        categories=("all",),
        subresources=(_SCALE, _status("ReplicaSet")),
    ),
    Resource("batch", "jobs", "job", "Job", categories=("all",), subresources=(_status("Job"),)),
    Resource("coordination.k8s.io", "leases", "lease", "Lease"),
    Resource("events.k8s.io", "events", "event", "Event", short_names=("ev",), stored_group=""),
    Resource(
        "networking.k8s.io",
        "networkpolicies",
        "networkpolicy",
        "NetworkPolicy",
        short_names=("netpol",),
        idle="no connection is refused",
    ),
    Resource(
        "policy",
        "poddisruptionbudgets",
        "poddisruptionbudget",
        "PodDisruptionBudget",
        short_names=("pdb",),
        subresources=(_status("PodDisruptionBudget"),),
    ),
    *_of_group(
        "rbac.authorization.k8s.io",
        ("clusterrole", "ClusterRole", _NO_RIGHTS),
        ("clusterrolebinding", "ClusterRoleBinding", _NO_RIGHTS),
    ),
    *_of_group(
        "rbac.authorization.k8s.io",
        ("role", "Role", _NO_RIGHTS),
        ("rolebinding", "RoleBinding", _NO_RIGHTS),
        namespaced=True,
    ),
    Resource(
        "scheduling.k8s.io",
        "priorityclasses",
        "priorityclass",
        "PriorityClass",
        namespaced=False,
        short_names=("pc",),
    ),
    Resource(_DRA, "deviceclasses", "deviceclass", "DeviceClass", namespaced=False),
    Resource(
        _DRA,
        "devicetaintrules",
        "devicetaintrule",
        "DeviceTaintRule",
        namespaced=False,
        subresources=(_status("DeviceTaintRule"),),
    ),
    Resource(
        _DRA, "resourceclaims", "resourceclaim", "ResourceClaim", subresources=(_status("ResourceClaim"),)
    ),
    Resource(_DRA, "resourceclaimtemplates", "resourceclaimtemplate", "ResourceClaimTemplate"),
    Resource(_DRA, "resourceslices", "resourceslice", "ResourceSlice", namespaced=False),
)

_BY_NAME = {(resource.group, resource.version, resource.plural): resource for resource in RESOURCES}


def find_resource(group: str, version: str, plural: str) -> Resource | None:
    """The served resource of that name, None for an unknown one."""
    return _BY_NAME.get((group, version, plural))


def groups() -> list[str]:
    """The named API groups in the order that discovery has them."""
    return sorted({resource.group for resource in RESOURCES if resource.group})
